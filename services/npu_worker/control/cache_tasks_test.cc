#include "services/npu_worker/control/cache_tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tandem::npu {
namespace {

constexpr uint32_t kTile = 32;
constexpr uint32_t kSlots = 4096;

// The slots that tasks read, one for each position: of keys, or of values.
std::vector<uint32_t> SlotsRead(const std::vector<CacheTask>& tasks, bool values) {
  std::vector<uint32_t> slots;
  for (const CacheTask& task : tasks) {
    for (uint32_t repeat = 0; repeat < task.num_repeats; ++repeat) {
      for (uint32_t i = 0; i < task.num_parts; ++i) {
        const CachePart& part = task.parts[i];
        for (uint32_t piece = 0; part.values == values && piece < part.num_pieces; ++piece) {
          for (uint32_t s = 0; s < part.piece.num_slots; ++s) {
            slots.push_back(part.piece.first_slot + repeat * task.repeat_distance +
                            piece * part.distance + s);
          }
        }
      }
    }
  }
  return slots;
}

// Whether keys and values come by turns, a tile of each.
bool TilesAlternate(const std::vector<CacheTask>& tasks) {
  uint32_t seen = 0;
  for (const CacheTask& task : tasks) {
    for (uint32_t repeat = 0; repeat < task.num_repeats; ++repeat) {
      for (uint32_t i = 0; i < task.num_parts; ++i) {
        if (task.parts[i].values != (seen / kTile % 2 == 1)) return false;
        seen += task.parts[i].num_pieces * task.parts[i].piece.num_slots;
      }
    }
  }
  return seen % (2 * kTile) == 0;
}

TEST(CacheTasksTest, ConsecutiveSlotsAreOneTaskForUpTo64Tiles) {
  const CacheExtent extent = {.num_positions = 70 * kTile, .first_slot = 7};
  const auto tasks = CacheTasksOf(kSlots, {&extent, 1}, {.first = 1, .count = 69});
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[0].num_repeats, 64u);
  EXPECT_EQ(tasks[0].parts[0].piece.first_slot, 7 + kTile);
  EXPECT_EQ(tasks[1].num_repeats, 5u);
  EXPECT_TRUE(TilesAlternate(tasks));
}

// Three sequences that grow side by side; the last tile has one block.
TEST(CacheTasksTest, BlocksAtAConstantDistanceAreOneTask) {
  std::vector<CacheExtent> extents;
  for (uint32_t i = 0; i < 21; ++i) extents.push_back({16 * i, 16, 16 * (3 * i + 1)});
  const auto tasks = CacheTasksOf(kSlots, extents, {.count = 11});
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[0].num_repeats, 10u);
  EXPECT_EQ(tasks[0].parts[1].num_pieces, 2u);
  EXPECT_EQ(tasks[0].parts[1].distance, 48u);
  EXPECT_EQ(tasks[0].repeat_distance, 96u);
  EXPECT_EQ(tasks[1].parts[0].piece.num_slots, kTile);
  EXPECT_TRUE(TilesAlternate(tasks));
  // Further apart than a descriptor can step.
  const CacheExtent far[] = {{0, 16, 0}, {16, 16, 4112}};
  EXPECT_EQ(CacheTasksOf(8192, far, {.count = 1}).size(), 2u);
}

TEST(CacheTasksTest, ATileInTwoPlacesIsAPairOfTasks) {
  const CacheExtent extents[] = {{0, 16, 100}, {16, 16, 50}};
  const auto tasks = CacheTasksOf(kSlots, extents, {.count = 1});
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_FALSE(tasks[0].parts[1].values);
  EXPECT_TRUE(tasks[1].parts[0].values);
  EXPECT_TRUE(TilesAlternate(tasks));
}

TEST(CacheTasksTest, BlocksSideBySideAreNotCut) {
  const CacheExtent extents[] = {{0, 16, 32}, {16, 16, 48}, {32, 16, 64}, {48, 16, 80}};
  EXPECT_EQ(CacheTasksOf(kSlots, extents, {.count = 2}).size(), 1u);
}

// Blocks of every size anywhere in the cache, from anywhere in a sequence on.
TEST(CacheTasksTest, EveryPositionIsReadFromItsSlot) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    const uint32_t block = 1 + random() % 48;
    const uint32_t num_blocks = 1 + random() % 12;
    const uint32_t first = random() % 4 * kTile + random() % kTile;
    std::vector<uint32_t> places((kSlots - kZeroSlots) / block);
    for (uint32_t i = 0; i < places.size(); ++i) places[i] = i * block;
    if (round % 3 != 0) std::ranges::shuffle(places, random);
    if (round % 3 == 2) {  // by turns with other sequences, for the most part
      for (uint32_t i = 0; i < num_blocks; ++i) places[i] = i * block * 3;
      if (random() % 2 == 0) std::swap(places[0], places[num_blocks / 2]);
    }
    std::vector<CacheExtent> extents;
    std::vector<uint32_t> slot_of;  // from `first` on
    for (uint32_t i = 0; i < num_blocks; ++i) {
      extents.push_back({first + i * block, block, places[i]});
      for (uint32_t p = 0; p < block; ++p) slot_of.push_back(places[i] + p);
    }
    const uint32_t end = first + num_blocks * block;
    const Tiles tiles = {first / kTile, (end - 1) / kTile + 1 - first / kTile};
    const auto tasks = CacheTasksOf(kSlots, extents, tiles);
    EXPECT_TRUE(TilesAlternate(tasks));
    for (const bool values : {false, true}) {
      const std::vector<uint32_t> read = SlotsRead(tasks, values);
      ASSERT_EQ(read.size(), tiles.count * kTile);
      for (uint32_t i = 0; i < read.size(); ++i) {
        const uint32_t position = tiles.first * kTile + i;
        ASSERT_LT(read[i], kSlots);
        if (position < first) {
          ASSERT_GE(read[i], kSlots - kZeroSlots) << "not zeros";
        } else if (position < end) {
          ASSERT_EQ(read[i], slot_of[position - first]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::npu
