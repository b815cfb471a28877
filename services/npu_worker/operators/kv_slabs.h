// The KV cache of the layers whose Attend an array runs.
//
// Each layer has a buffer of its own: bfloat16 keys [num_kv_heads][slots][head_dim], then values.  Block b
// of the gateway's tables has the slots from b * block_tokens on, so blocks that follow one another are
// one run of memory for each head, and one shim descriptor.  The last 32 slots of a head hold zeros.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/tensor/dtype.h"
#include "services/npu_worker/control/attention.h"
#include "services/npu_worker/xrt/npu_buffer.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {

struct SlabShape {
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint64_t num_slots = 0;  // with the zeros

  uint64_t value_offset() const { return num_kv_heads * num_slots * head_dim * sizeof(uint16_t); }
  uint64_t bytes() const { return 2 * value_offset(); }
};

// One layer's cache.  The host alone writes it.  Single-thread.
class KvSlab {
 public:
  // `index`: which data buffer of the kernel it is.  INVALID_ARGUMENT: beyond what control code
  // addresses, 4 GiB; otherwise as NpuKernel::Allocate.
  static absl::StatusOr<KvSlab> Create(NpuKernel& kernel, int index, const SlabShape& shape);

  const NpuBuffer& buffer() const { return buffer_; }
  const SlabShape& shape() const { return shape_; }

  // Puts the runs' keys and values, `dtype` [rows][num_kv_heads][head_dim], into their slots and makes them
  // visible to the device.  `dtype`: kF16, which is converted, or kBf16.
  // REQUIRES runs that StepRuns made for slots of this slab.
  absl::Status Append(std::span<const AttentionRun> runs, DType dtype,
                      std::span<const uint16_t> keys, std::span<const uint16_t> values);

  // Copies the slots of a block between the cache and `pages`: float16 K [num_kv_heads][num_slots]
  // [head_dim], then V, as they lie in the exchange region's area (step/kv_copy.h).
  //
  // `write`: from the pages to the cache.  A value that another kind of worker computed has 11 bits and
  // keeps 8: it changes by at most 2^-8 of itself.  A value that was in a bfloat16 cache before, this
  // one's or another's, keeps its bits if Append made it of a float16.  If Append had it as a bfloat16, it
  // keeps them within float16's normal range: below 2^-14 it changes by at most 2^-25, above 65504 it
  // becomes 65536.
  // Errors of NpuBuffer's Sync.  REQUIRES slots of this slab, and that no command runs over it.
  absl::Status CopyBlock(bool write, uint64_t first_slot, uint32_t num_slots,
                         std::span<uint16_t> pages);

 private:
  // `num_rows` rows from `row` on to the slots from `slot` on.
  absl::Status AppendRows(uint32_t row, uint32_t num_rows, uint32_t slot, DType dtype,
                          std::span<const uint16_t> from, uint64_t offset);

  NpuBuffer buffer_;
  SlabShape shape_;
};

}  // namespace tandem::npu
