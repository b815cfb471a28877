#include "services/npu_worker/emulator/driver/columns.h"

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_format.h"

namespace tandem::npu::emulator {

bool Columns::IsFree(uint32_t first, uint32_t width) const {
  return std::ranges::none_of(partitions_, [&](const Partition& partition) {
    return first < partition.first + partition.width && partition.first < first + width;
  });
}

Errno Columns::Acquire(uint32_t width, uint32_t* first) {
  const uint32_t usable = profile_.num_columns - profile_.first_column;
  if (width == 0 || width > usable) {
    return Refuse(EINVAL,
                  absl::StrFormat("a context of %d columns: the array has %d", width, usable));
  }
  if (num_contexts() >= profile_.max_contexts) {
    return Refuse(EINVAL,
                  absl::StrFormat("firmware: no context is left (status 0x2000003), %d exist",
                                  num_contexts()));
  }
  const uint32_t step = profile_.aligned_columns ? width : 1;
  const uint32_t begin = (profile_.first_column + step - 1) / step * step;
  for (uint32_t start = begin; start + width <= profile_.num_columns; start += step) {
    if (!IsFree(start, width)) continue;
    partitions_.push_back({start, width, 1});
    *first = start;
    return 0;
  }
  Partition* shared = nullptr;
  for (Partition& partition : partitions_) {
    if (partition.width != width) continue;
    if (shared == nullptr || partition.num_contexts < shared->num_contexts) shared = &partition;
  }
  if (shared == nullptr) {
    return Refuse(ENODEV,
                  absl::StrFormat("no %d columns are free, and no partition of that width is "
                                  "shared",
                                  width));
  }
  ++shared->num_contexts;
  *first = shared->first;
  return 0;
}

void Columns::Release(uint32_t first, uint32_t width) {
  const auto found = std::ranges::find_if(partitions_, [&](const Partition& partition) {
    return partition.first == first && partition.width == width;
  });
  if (found != partitions_.end() && --found->num_contexts == 0) partitions_.erase(found);
}

uint32_t Columns::num_contexts() const {
  uint32_t count = 0;
  for (const Partition& partition : partitions_) count += partition.num_contexts;
  return count;
}

}  // namespace tandem::npu::emulator
