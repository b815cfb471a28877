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
uint32_t Cache(KvBlockPool& pool, bool passed, bool shared = false) {
  const uint32_t block = pool.Allocate();
  pool.Keep(block);
  if (shared) {
    pool.Share(block);
    pool.Free(block);
  }
  pool.Free(block, passed);
  return block;
}

TEST(KvBlockPoolTest, GivesUpPassedBlocksWhileTheyAreHalfOfWhatIsCached) {
  KvBlockPool pool(8);
  const uint32_t ends[] = {Cache(pool, false), Cache(pool, false), Cache(pool, false)};
  const uint32_t shared = Cache(pool, /*passed=*/true, /*shared=*/true);
  const uint32_t passed[] = {Cache(pool, true), Cache(pool, true), Cache(pool, true),
                             Cache(pool, true)};
  for (const uint32_t victim :
       {passed[0], ends[0], passed[1], ends[1], passed[2], ends[2], passed[3], shared}) {
    EXPECT_EQ(pool.NextVictim(), victim);
    pool.Forget(victim);
  }
  EXPECT_EQ(pool.NextVictim(), kNoBlock);
  EXPECT_EQ(pool.num_free(), 8u);
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
