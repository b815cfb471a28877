// KV append and attention of the emulated NPU (contract: attention/kernel_abi.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "services/npu_worker/attention/kernel_abi.h"
#include "services/npu_worker/emulator/kernels/parallel_for.h"

namespace tandem::npu::emulator {

// A step descriptor's parts, checked against the buffer that holds it.
struct StepView {
  StepDescriptor header;
  std::span<const SequenceDescriptor> sequences;
  std::span<const uint32_t> block_table;
};
// INVALID_ARGUMENT or OUT_OF_RANGE when a count, row or table range is impossible.
absl::StatusOr<StepView> ReadStep(std::span<const std::byte> buffer);

// Runs the kernel.  Checks every offset and block against the buffers first; an error leaves
// exchange and kv untouched.  A row's output depends on its q and on the cache alone, bit for
// bit: positions are taken in tiles aligned to absolute positions, in order.
// Returns the output, f16 [num_rows, num_heads, head_dim], as bytes of exchange.
absl::StatusOr<std::span<std::byte>> Attend(const StepView& step, const AttendParameters& layer,
                                            std::span<std::byte> exchange, std::span<std::byte> kv,
                                            ParallelFor& parallel_for);

}  // namespace tandem::npu::emulator
