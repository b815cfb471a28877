#include "services/common/kv/kv_block_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace tandem {
namespace {

TEST(KvBlockPoolTest, HandsOutEveryBlockOnceAndThenNone) {
  KvBlockPool pool(7);
  std::set<uint32_t> blocks;
  for (int i = 0; i < 7; ++i) blocks.insert(pool.Allocate());
  EXPECT_EQ(blocks.size(), 7u);
  EXPECT_EQ(*blocks.rbegin(), 6u);
  EXPECT_EQ(pool.Allocate(), kNoBlock);
  EXPECT_EQ(pool.num_free(), 0u);
  EXPECT_EQ(pool.num_used(), 7u);
}

TEST(KvBlockPoolTest, HandsOutTheBlockFreedLastFirst) {
  KvBlockPool pool(4);
  const uint32_t a = pool.Allocate();
  const uint32_t b = pool.Allocate();
  pool.Free(a);
  pool.Free(b);
  EXPECT_EQ(pool.Allocate(), b);
  EXPECT_EQ(pool.Allocate(), a);
}

TEST(KvBlockPoolTest, AnEmptyPoolHasNothing) {
  KvBlockPool pool(0);
  EXPECT_EQ(pool.Allocate(), kNoBlock);
}

TEST(KvBlockPoolTest, AKeptBlockIsCachedWhenItsLastHolderLetsGo) {
  KvBlockPool pool(3);
  const uint32_t a = pool.Allocate();
  pool.Keep(a);
  pool.Share(a);
  pool.Free(a);
  EXPECT_EQ(pool.num_used(), 1u);
  pool.Free(a);
  EXPECT_EQ(pool.num_used(), 0u);
  EXPECT_EQ(pool.num_cached(), 1u);
  EXPECT_EQ(pool.num_free(), 2u);
  EXPECT_EQ(pool.num_available(), 3u);
  EXPECT_NE(pool.Allocate(), a);
  EXPECT_NE(pool.Allocate(), a);
  EXPECT_EQ(pool.Allocate(), kNoBlock) << "cached is not free";
  EXPECT_EQ(pool.NextVictim(), a);
  pool.Share(a);
  EXPECT_EQ(pool.NextVictim(), kNoBlock);
  pool.Forget(a);
  pool.Free(a);
  EXPECT_EQ(pool.Allocate(), a);
}

// Allocates, keeps and frees a block.
uint32_t Cache(KvBlockPool& pool, bool passed, bool at_fork = false) {
  const uint32_t block = pool.Allocate();
  pool.Keep(block);
  if (at_fork) pool.MarkFork(block);
  pool.Free(block, passed);
  return block;
}

TEST(KvBlockPoolTest, GivesUpPassedBlocksWhileTheyAreAnEighthOfWhatIsCached) {
  KvBlockPool pool(16);
  uint32_t ends[11], passed[4];
  for (uint32_t& block : ends) block = Cache(pool, false);
  const uint32_t fork = Cache(pool, /*passed=*/true, /*at_fork=*/true);
  for (uint32_t& block : passed) block = Cache(pool, true);
  // 4 of 16, 3 of 15 and 2 of 14 are passed, then 1 of 13: too few.
  for (const uint32_t victim : {passed[0], passed[1], passed[2], ends[0], ends[1], ends[2], ends[3],
                                ends[4], passed[3], ends[5]}) {
    EXPECT_EQ(pool.NextVictim(), victim);
    pool.Forget(victim);
  }
  for (int i = 6; i < 11; ++i) pool.Forget(ends[i]);
  EXPECT_EQ(pool.NextVictim(), fork);
  pool.Forget(fork);
  EXPECT_EQ(pool.NextVictim(), kNoBlock);
  EXPECT_EQ(pool.num_free(), 16u);
}

TEST(KvBlockPoolTest, APassedBlockBeforeAForkCountsAsPassedNoMore) {
  KvBlockPool pool(4);
  const uint32_t late = Cache(pool, true);
  const uint32_t other = Cache(pool, true);
  EXPECT_EQ(pool.NextVictim(), late);
  pool.MarkFork(late);
  EXPECT_EQ(pool.NextVictim(), other);
  EXPECT_EQ(pool.num_cached(), 2u);
  pool.Forget(other);
  EXPECT_EQ(pool.NextVictim(), late);
  pool.Forget(late);
  const uint32_t again = Cache(pool, true);
  const uint32_t another = Cache(pool, true);
  EXPECT_EQ(pool.NextVictim(), again) << "a new block knows of no fork";
  EXPECT_NE(again, another);
}

TEST(KvBlockPoolDeathTest, FreeingTwiceOrAForeignBlockAborts) {
  KvBlockPool pool(2);
  const uint32_t a = pool.Allocate();
  pool.Free(a);
  EXPECT_DEATH(pool.Free(a), "check failed");
  EXPECT_DEATH(pool.Free(2), "check failed");
  EXPECT_DEATH(pool.Share(a), "check failed");
  EXPECT_DEATH(pool.Keep(a), "check failed");
  EXPECT_DEATH(pool.Forget(a), "check failed");
}

}  // namespace
}  // namespace tandem
