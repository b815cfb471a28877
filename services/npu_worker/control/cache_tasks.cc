#include "services/npu_worker/control/cache_tasks.h"

#include <algorithm>

#include "services/npu_worker/control/shim_descriptor.h"
#include "services/npu_worker/kernels/aie/attention_tile.h"

namespace tandem::npu {
namespace {

// Slots from a tile to the next, as far as a descriptor of the largest heads can step.
constexpr uint32_t kMostDistance = 8192;

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
      task.parts[task.num_parts++] = {.values = values, .piece = piece};
      if (task.num_parts < task.parts.size()) continue;
      tasks.push_back(task);
      task.num_parts = 0;
    }
  }
}

// Tiles whose positions are in consecutive slots, from the first of `pieces` on; num_repeats 0: none.
CacheTask WholeTiles(std::span<const Piece> pieces) {
  const Piece tile = {pieces.front().first_slot, kAttentionKeys};
  return {.parts = {CachePart{.values = false, .piece = tile}, {.values = true, .piece = tile}},
          .num_parts = 2,
          .num_repeats = std::min(pieces.front().num_slots / kAttentionKeys, kShimRepeats),
          .repeat_distance = kAttentionKeys};
}

// Tiles of equally long pieces at one distance, from the first of `pieces` on; num_repeats 0: none.
CacheTask StridedTiles(std::span<const Piece> pieces) {
  const Piece first = pieces.front();
  CacheTask task = {.num_parts = 2, .num_repeats = 0};
  if (pieces.size() < 2 || kAttentionKeys % first.num_slots != 0 ||
      pieces[1].first_slot <= first.first_slot) {
    return task;
  }
  const uint32_t count = kAttentionKeys / first.num_slots;
  const uint32_t distance = pieces[1].first_slot - first.first_slot;
  if (distance > kMostDistance / count) return task;
  size_t alike = 1;
  while (alike < pieces.size() && alike < size_t{kShimRepeats} * count &&
         pieces[alike].num_slots == first.num_slots &&
         pieces[alike].first_slot == pieces[alike - 1].first_slot + distance) {
    ++alike;
  }
  for (const bool values : {false, true}) {
    task.parts[values ? 1 : 0] = {
        .values = values, .piece = first, .num_pieces = count, .distance = distance};
  }
  task.num_repeats = static_cast<uint32_t>(alike) / count;
  task.repeat_distance = count * distance;
  return task;
}

}  // namespace

std::vector<CacheTask> CacheTasksOf(uint32_t cache_slots, std::span<const CacheExtent> extents,
                                    const Tiles& tiles) {
  std::vector<Piece> pieces = PiecesOf(cache_slots, extents, tiles);
  std::span<Piece> left = pieces;
  std::vector<CacheTask> tasks;
  while (!left.empty()) {
    CacheTask task = WholeTiles(left);
    if (task.num_repeats == 0) task = StridedTiles(left);
    if (task.num_repeats == 0) {
      AddTileInPieces(TakeSlots(left, kAttentionKeys), tasks);
      continue;
    }
    tasks.push_back(task);
    (void)TakeSlots(left, task.num_repeats * kAttentionKeys);
  }
  return tasks;
}

}  // namespace tandem::npu
