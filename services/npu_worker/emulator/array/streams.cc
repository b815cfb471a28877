#include "services/npu_worker/emulator/array/streams.h"

#include <algorithm>

namespace tandem::npu::emulator {

bool Broadcast::Take(uint32_t core, std::span<uint32_t> words) {
  const uint64_t end = positions_[core] + words.size();
  const uint64_t held = first_ + waiting_.size();
  if (end > held) {
    const uint64_t missing = end - held;
    if (waiting_.size() + missing > room_) return false;
    // A memory tile takes the parts of an object as they come.
    std::vector<uint32_t> fresh(
        std::min(missing, dma_->Remaining(DmaDirection::kToTile, channel_)));
    dma_->Read(channel_, fresh);
    waiting_.insert(waiting_.end(), fresh.begin(), fresh.end());
    if (fresh.size() < missing) return false;
  }
  const auto from = waiting_.begin() + static_cast<ptrdiff_t>(positions_[core] - first_);
  std::copy_n(from, words.size(), words.begin());
  positions_[core] = end;
  const uint64_t slowest = *std::ranges::min_element(positions_);
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(slowest - first_));
  first_ = slowest;
  return true;
}

bool Deal::Take(uint32_t core, std::span<uint32_t> words) {
  if (core != turn_ || dma_->Remaining(DmaDirection::kToTile, channel_) < words.size())
    return false;
  dma_->Read(channel_, words);
  turn_ = (turn_ + 1) % num_cores_;
  return true;
}

bool Join::Put(uint32_t core, std::span<const uint32_t> tile) {
  if (!tiles_[core].empty()) return false;
  tiles_[core].assign(tile.begin(), tile.end());
  return true;
}

bool Join::Flush() {
  bool moved = false;
  while (!tiles_[turn_].empty()) {
    std::vector<uint32_t>& tile = tiles_[turn_];
    const uint64_t count = std::min<uint64_t>(tile.size() - position_,
                                              dma_->Remaining(DmaDirection::kFromTile, channel_));
    if (count == 0) return moved;
    dma_->Write(channel_, std::span<const uint32_t>(tile).subspan(position_, count));
    moved = true;
    position_ += count;
    if (position_ < tile.size()) return moved;
    tile.clear();
    position_ = 0;
    turn_ = (turn_ + 1) % static_cast<uint32_t>(tiles_.size());
  }
  return moved;
}

}  // namespace tandem::npu::emulator
