#include "services/gpu_worker/emulator/driver/range_allocator.h"

namespace tandem::rdna {

RangeAllocator::RangeAllocator(uint64_t begin, uint64_t end) {
  if (begin < end) holes_.emplace(begin, end);
}

std::optional<uint64_t> RangeAllocator::Allocate(uint64_t bytes, uint64_t alignment) {
  if (bytes == 0) return std::nullopt;
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    const uint64_t begin = (hole->first + alignment - 1) & ~(alignment - 1);
    if (begin < hole->first || begin >= hole->second || hole->second - begin < bytes) continue;
    Take(hole, begin, begin + bytes);
    return begin;
  }
  return std::nullopt;
}

bool RangeAllocator::AllocateAt(uint64_t begin, uint64_t bytes) {
  auto hole = holes_.upper_bound(begin);
  if (hole == holes_.begin() || bytes == 0) return false;
  --hole;
  if (hole->second <= begin || hole->second - begin < bytes) return false;
  Take(hole, begin, begin + bytes);
  return true;
}

void RangeAllocator::Take(std::map<uint64_t, uint64_t>::iterator hole, uint64_t begin,
                          uint64_t end) {
  const uint64_t hole_begin = hole->first, hole_end = hole->second;
  holes_.erase(hole);
  if (hole_begin < begin) holes_.emplace(hole_begin, begin);
  if (end < hole_end) holes_.emplace(end, hole_end);
}

void RangeAllocator::Free(uint64_t begin, uint64_t bytes) {
  uint64_t end = begin + bytes;
  auto next = holes_.lower_bound(begin);
  if (next != holes_.end() && next->first == end) {
    end = next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->second == begin) {
      before->second = end;
      return;
    }
  }
  holes_.emplace(begin, end);
}

uint64_t RangeAllocator::free_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [begin, end] : holes_) bytes += end - begin;
  return bytes;
}

}  // namespace tandem::rdna
