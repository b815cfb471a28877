#include "services/npu_worker/operators/kv_slabs.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/operators/number_formats.h"

namespace tandem::npu {

absl::StatusOr<KvSlab> KvSlab::Create(NpuKernel& kernel, int index, const SlabShape& shape) {
  if (shape.bytes() > ~0u) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a layer's KV cache of %d slots has %d MiB, and control code addresses "
                        "4096: lower kv_tokens",
                        shape.num_slots, shape.bytes() >> 20));
  }
  KvSlab slab;
  slab.shape_ = shape;
  TANDEM_ASSIGN_OR_RETURN(slab.buffer_, kernel.Allocate(index, shape.bytes()));
  return slab;
}

absl::Status KvSlab::AppendRows(uint32_t row, uint32_t num_rows, uint32_t slot, DType dtype,
                                std::span<const uint16_t> from, uint64_t offset) {
  const size_t dim = shape_.head_dim;
  auto* const slots = reinterpret_cast<uint16_t*>(buffer_.data() + offset);
  for (uint32_t head = 0; head < shape_.num_kv_heads; ++head) {
    const size_t first = (head * shape_.num_slots + slot) * dim;
    for (uint32_t i = 0; i < num_rows; ++i) {
      const size_t at = (size_t{row + i} * shape_.num_kv_heads + head) * dim;
      PortToBf16(dtype, from.subspan(at, dim), {slots + first + i * dim, dim});
    }
    TANDEM_RETURN_IF_ERROR(
        buffer_.SyncToDevice(offset + first * sizeof(uint16_t), num_rows * dim * sizeof(uint16_t)));
  }
  return absl::OkStatus();
}

absl::Status KvSlab::CopyBlock(bool write, uint64_t first_slot, uint32_t num_slots,
                               std::span<uint16_t> pages) {
  auto* const slots = reinterpret_cast<uint16_t*>(buffer_.data());
  const size_t page = size_t{num_slots} * shape_.head_dim;
  // K of all heads, then V: a head's slots are behind those of the one before.
  for (size_t head = 0; head < 2 * size_t{shape_.num_kv_heads}; ++head) {
    const size_t first = (head * shape_.num_slots + first_slot) * shape_.head_dim;
    const std::span<uint16_t> halves = pages.subspan(head * page, page);
    const std::span<uint16_t> cached(slots + first, page);
    const size_t offset = first * sizeof(uint16_t), bytes = page * sizeof(uint16_t);
    if (write) {
      HalvesToBf16(halves, cached);
      TANDEM_RETURN_IF_ERROR(buffer_.SyncToDevice(offset, bytes));
    } else {
      TANDEM_RETURN_IF_ERROR(buffer_.SyncFromDevice(offset, bytes));
      Bf16ToFiniteHalves(cached, halves);
    }
  }
  return absl::OkStatus();
}

absl::Status KvSlab::Append(std::span<const AttentionRun> runs, DType dtype,
                            std::span<const uint16_t> keys, std::span<const uint16_t> values) {
  for (const AttentionRun& run : runs) {
    uint32_t row = run.first_row;
    const uint32_t end = run.first_row + run.num_rows;
    auto extent = std::ranges::upper_bound(run.extents, run.first_position, {},
                                           &CacheExtent::first_position) -
                  1;
    for (; row < end; ++extent) {
      const uint32_t skipped = run.first_position + (row - run.first_row) - extent->first_position;
      const uint32_t count = std::min(extent->num_positions - skipped, end - row);
      const uint32_t slot = extent->first_slot + skipped;
      TANDEM_RETURN_IF_ERROR(AppendRows(row, count, slot, dtype, keys, 0));
      TANDEM_RETURN_IF_ERROR(AppendRows(row, count, slot, dtype, values, shape_.value_offset()));
      row += count;
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::npu
