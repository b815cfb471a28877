// The KV cache as an attention array reads it: tasks of a shim channel that bring tiles of 32
// positions, keys and then values, from wherever the cache has them.
//
// Positions in consecutive slots are one task for up to 64 tiles: a pair of descriptors that repeats.  So
// are blocks at a constant distance, which sequences get that grow side by side.  A tile that lies
// otherwise is as many parts of keys and then of values as it has pieces, two a task.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem::npu {

// Positions [first_position, first_position + num_positions) of a sequence lie in slots from
// first_slot on.
struct CacheExtent {
  uint32_t first_position = 0;
  uint32_t num_positions = 0;
  uint32_t first_slot = 0;
  bool operator==(const CacheExtent&) const = default;
};

// Slots of zeros at the end of each head.
inline constexpr uint32_t kZeroSlots = 32;

// Tiles of 32 positions.
struct Tiles {
  uint32_t first = 0;
  uint32_t count = 0;
};

// Consecutive slots.
struct Piece {
  uint32_t first_slot = 0;
  uint32_t num_slots = 0;
};

// Keys or values of pieces as long as the first, each `distance` slots behind the one before.
struct CachePart {
  bool values = false;
  Piece piece;
  uint32_t num_pieces = 1;
  uint32_t distance = 0;
};
// One task of the cache's channel: its parts in turn, `num_repeats` times, each time
// `repeat_distance` slots further on.
struct CacheTask {
  std::array<CachePart, 2> parts;
  uint32_t num_parts = 0;
  uint32_t num_repeats = 1;
  uint32_t repeat_distance = 0;
};

// The tasks of `tiles`, in order.  Positions before the first extent are read from the cache's zeros, those
// beyond the last one from the slots that follow it.  REQUIRES extents without holes that end at least
// kZeroSlots before `cache_slots`; the first begins less than a tile behind the tiles' first position,
// and the last one reaches their last tile.
std::vector<CacheTask> CacheTasksOf(uint32_t cache_slots, std::span<const CacheExtent> extents,
                                    const Tiles& tiles);

}  // namespace tandem::npu
