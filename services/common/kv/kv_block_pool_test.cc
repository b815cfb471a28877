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

TEST(KvBlockPoolDeathTest, FreeingTwiceOrAForeignBlockAborts) {
  KvBlockPool pool(2);
  const uint32_t a = pool.Allocate();
  pool.Free(a);
  EXPECT_DEATH(pool.Free(a), "check failed");
  EXPECT_DEATH(pool.Free(2), "check failed");
}

}  // namespace
}  // namespace tandem
