#include "services/npu_worker/control/cache_tasks.h"

#include <algorithm>

#include "services/npu_worker/control/shim_descriptor.h"
#include "services/npu_worker/kernels/aie/attention_tile.h"

namespace tandem::npu {
namespace {

// Where the positions of some tiles lie, in order.
std::vector<Piece> PiecesOf(uint32_t cache_slots, std::span<const CacheExtent> extents,
                            const Tiles& tiles) {
  uint32_t position = tiles.first * kAttentionKeys;
  const uint32_t end = position + tiles.count * kAttentionKeys;
  std::vector<Piece> pieces;
  // Nobody sees the positions before the first extent.
  if (const uint32_t first = extents.front().first_position; first > position) {
    pieces.push_back({cache_slots - kZeroSlots, first - position});
    position = first;
  }
  auto extent = std::ranges::upper_bound(extents, position, {}, &CacheExtent::first_position) - 1;
  for (; extent != extents.end() && position < end; ++extent) {
    const uint32_t skipped = position - extent->first_position;
    const uint32_t count = std::min(extent->num_positions - skipped, end - position);
    const uint32_t slot = extent->first_slot + skipped;
    if (!pieces.empty() && pieces.back().first_slot + pieces.back().num_slots == slot) {
      pieces.back().num_slots += count;
    } else {
      pieces.push_back({slot, count});
    }
    position += count;
  }
  // Cores take no notice of what follows the last position.
  pieces.back().num_slots += end - position;
  return pieces;
}

// Takes the next `count` slots off the front of `pieces`.
std::vector<Piece> TakeSlots(std::span<Piece>& pieces, uint32_t count) {
  std::vector<Piece> taken;
  while (count > 0) {
    Piece& front = pieces.front();
    const uint32_t part = std::min(count, front.num_slots);
    taken.push_back({front.first_slot, part});
    front = {front.first_slot + part, front.num_slots - part};
    count -= part;
    if (front.num_slots == 0) pieces = pieces.subspan(1);
  }
  return taken;
}

// Keys of all pieces, then values, two parts a task.
void AddTileInPieces(std::span<const Piece> pieces, std::vector<CacheTask>& tasks) {
  CacheTask task;
  for (const bool values : {false, true}) {
    for (const Piece& piece : pieces) {
      task.parts[task.num_parts++] = {values, piece};
      if (task.num_parts < task.parts.size()) continue;
      tasks.push_back(task);
      task.num_parts = 0;
    }
  }
}

}  // namespace

std::vector<CacheTask> CacheTasksOf(uint32_t cache_slots, std::span<const CacheExtent> extents,
                                    const Tiles& tiles) {
  std::vector<Piece> pieces = PiecesOf(cache_slots, extents, tiles);
  std::span<Piece> left = pieces;
  std::vector<CacheTask> tasks;
  while (!left.empty()) {
    const uint32_t whole = std::min(left.front().num_slots / kAttentionKeys, kShimRepeats);
    if (whole == 0) {
      AddTileInPieces(TakeSlots(left, kAttentionKeys), tasks);
      continue;
    }
    const Piece tile = {left.front().first_slot, kAttentionKeys};
    tasks.push_back({.parts = {CachePart{false, tile}, CachePart{true, tile}},
                     .num_parts = 2,
                     .num_repeats = whole});
    (void)TakeSlots(left, whole * kAttentionKeys);
  }
  return tasks;
}

}  // namespace tandem::npu
