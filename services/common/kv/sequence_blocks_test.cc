#include "services/common/kv/sequence_blocks.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>

namespace tandem {
namespace {

StepLimits Limits(uint32_t block_tokens, uint32_t window, uint32_t global, uint32_t local) {
  return {.block_tokens = block_tokens, .sliding_window = window, .num_blocks = {global, local}};
}

TEST(SequenceBlocksTest, TablesCoverThePositionsAndNoMore) {
  for (const uint32_t num_positions : {1u, 15u, 16u, 17u, 31u}) {
    KvPools pools(Limits(16, 64, 10, 10));
    SequenceBlocks blocks(pools);
    ASSERT_TRUE(blocks.Extend(num_positions));
    EXPECT_EQ(blocks.table(kGlobalGroup).size(), (num_positions + 15) / 16);
    EXPECT_EQ(blocks.table(kWindowGroup).size(), (num_positions + 15) / 16);
    ASSERT_TRUE(blocks.Extend(num_positions));
    EXPECT_EQ(pools.pools[kGlobalGroup].num_used(), (num_positions + 15) / 16);
  }
}

TEST(SequenceBlocksTest, GivesBackWindowBlocksWhollyBeforeTheWindow) {
  KvPools pools(Limits(4, 6, 10, 10));
  SequenceBlocks blocks(pools);
  ASSERT_TRUE(blocks.Extend(14));
  blocks.ReleaseBefore(8);  // sees 3..8: entry 0 holds position 3
  EXPECT_EQ(blocks.num_held(kWindowGroup), 4u);
  blocks.ReleaseBefore(9);  // sees 4..9
  EXPECT_EQ(blocks.num_held(kWindowGroup), 3u);
  EXPECT_EQ(blocks.table(kWindowGroup)[0], kNoBlock);
  blocks.ReleaseBefore(13);
  EXPECT_EQ(blocks.num_held(kWindowGroup), 2u);
  EXPECT_NE(blocks.table(kWindowGroup)[2], kNoBlock);
  EXPECT_EQ(blocks.num_held(kGlobalGroup), 4u);
  EXPECT_EQ(pools.pools[kWindowGroup].num_used(), 2u);
}

TEST(SequenceBlocksTest, KeepsWindowBlocksFromThePicturesFirstPositionOn) {
  KvPools pools(Limits(4, 6, 10, 10));
  SequenceBlocks blocks(pools);
  ASSERT_TRUE(blocks.Extend(20));
  blocks.ReleaseBefore(17, 5);  // the window begins at 12
  EXPECT_EQ(blocks.num_held(kWindowGroup), 4u);
  EXPECT_NE(blocks.table(kWindowGroup)[1], kNoBlock);
  blocks.ReleaseBefore(17, 16);
  EXPECT_EQ(blocks.num_held(kWindowGroup), 2u);
}

TEST(SequenceBlocksTest, ExtendingBeyondTheFreeBlocksChangesNothing) {
  KvPools pools(Limits(4, 6, 5, 3));
  SequenceBlocks first(pools);
  SequenceBlocks second(pools);
  ASSERT_TRUE(first.Extend(5));
  EXPECT_EQ(second.NumCoverable(), 4u);
  EXPECT_FALSE(second.Extend(5));
  EXPECT_TRUE(second.table(kGlobalGroup).empty());
  EXPECT_EQ(pools.pools[kGlobalGroup].num_used(), 2u);
  first.FreeAll();
  EXPECT_TRUE(second.Extend(12));
}

TEST(SequenceBlocksTest, DestructionFreesEverything) {
  KvPools pools(Limits(4, 6, 5, 5));
  {
    SequenceBlocks blocks(pools);
    ASSERT_TRUE(blocks.Extend(17));
    blocks.ReleaseBefore(12);
  }
  EXPECT_EQ(pools.pools[kGlobalGroup].num_free(), 5u);
  EXPECT_EQ(pools.pools[kWindowGroup].num_free(), 5u);
}

TEST(SequenceBlocksTest, ASequenceInSteadyStateHoldsAtMostWindowBlocksFor) {
  for (const uint32_t window : {1u, 5u, 16u, 17u, 64u}) {
    for (const uint32_t rows : {1u, 7u, 16u}) {
      KvPools pools(Limits(16, window, 100, 100));
      SequenceBlocks blocks(pools);
      for (uint32_t position = 0; position + rows < 1000; position += rows) {
        blocks.ReleaseBefore(position);
        ASSERT_TRUE(blocks.Extend(position + rows));
        ASSERT_LE(blocks.num_held(kWindowGroup), pools.WindowBlocksFor(rows));
      }
    }
  }
}

// Many sequences grow, slide, end and start over at random: no block is ever in two tables, and
// what the tables hold is what the pools count as used.
TEST(SequenceBlocksTest, RandomLivesNeverShareOrLeakABlock) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const uint32_t block_tokens = 1 + random() % 17;
    KvPools pools(Limits(block_tokens, 1 + random() % 40, 60, 30));
    constexpr int kSequences = 6;
    std::vector<std::unique_ptr<SequenceBlocks>> sequences;
    std::vector<uint32_t> positions(kSequences, 0);
    sequences.reserve(kSequences);
    for (int s = 0; s < kSequences; ++s)
      sequences.push_back(std::make_unique<SequenceBlocks>(pools));
    for (int turn = 0; turn < 2000; ++turn) {
      const int s = random() % kSequences;
      if (random() % 20 == 0) {
        sequences[s]->FreeAll();
        positions[s] = 0;
      } else {
        const uint32_t rows = 1 + random() % 33;
        sequences[s]->ReleaseBefore(positions[s]);
        const bool fits = positions[s] + rows <= sequences[s]->NumCoverable();
        ASSERT_EQ(sequences[s]->Extend(positions[s] + rows), fits);
        if (fits) positions[s] += rows;
      }
      for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
        std::set<uint32_t> seen;
        uint32_t held = 0;
        for (const auto& sequence : sequences) {
          held += sequence->num_held(group);
          for (const uint32_t block : sequence->table(group)) {
            if (block == kNoBlock) continue;
            ASSERT_TRUE(seen.insert(block).second) << "block " << block << " is held twice";
          }
        }
        ASSERT_EQ(seen.size(), held);
        ASSERT_EQ(pools.pools[group].num_used(), held);
      }
    }
  }
}

}  // namespace
}  // namespace tandem
