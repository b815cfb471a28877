// Output projection of the emulated NPU (contract: attention/kernel_abi.h).
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "services/npu_worker/attention/kernel_abi.h"
#include "services/npu_worker/emulator/kernels/parallel_for.h"

namespace tandem::npu::emulator {

// projection[r, first_row + i] = weight[i] . attention[r] for `num_step_rows` rows.  Checks every
// offset first.  A row's output depends on that row alone, bit for bit.
// Returns the projection area, f32 [num_step_rows, hidden_dim], as bytes of exchange.
absl::StatusOr<std::span<std::byte>> Out(uint32_t num_step_rows, const OutParameters& layer,
                                         std::span<std::byte> exchange,
                                         std::span<const std::byte> weights,
                                         ParallelFor& parallel_for);

}  // namespace tandem::npu::emulator
