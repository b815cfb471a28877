#include "services/common/kv/kv_pools.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "services/common/kv/sequence_blocks.h"

namespace tandem {
namespace {

using Tokens = std::vector<uint32_t>;

StepLimits PoolLimits(uint32_t block_tokens, uint32_t window, uint32_t global, uint32_t local) {
  return {.block_tokens = block_tokens, .sliding_window = window, .num_blocks = {global, local}};
}

Tokens Counting(uint32_t n, uint32_t first = 1) {
  Tokens tokens(n);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Computes `tokens` in one step, and ends.
void Serve(KvPools& pools, const Tokens& tokens, uint32_t scope = 0) {
  SequenceBlocks blocks(pools, /*publishes=*/true, scope);
  ASSERT_TRUE(blocks.Extend(static_cast<uint32_t>(tokens.size())));
  blocks.Publish(tokens);
}

uint32_t NumFound(const KvPools& pools, const Tokens& tokens, uint64_t max_positions,
                  uint32_t scope = 0) {
  CachedPrefix found;
  pools.Find(scope, tokens, max_positions, found);
  return static_cast<uint32_t>(found.nodes.size());
}

TEST(KvPoolsTest, FindsWholeBlocksAfterTheSameTokensAndNoOthers) {
  for (const uint32_t block_tokens : {1u, 3u, 16u}) {
    SCOPED_TRACE(block_tokens);
    KvPools pools(PoolLimits(block_tokens, 1000, 100, 100));
    const Tokens tokens = Counting(5 * block_tokens + block_tokens / 2);
    Serve(pools, tokens);
    EXPECT_EQ(pools.pools[kGlobalGroup].num_cached(), 5u);
    EXPECT_EQ(pools.pools[kGlobalGroup].num_used(), 0u);
    EXPECT_EQ(NumFound(pools, tokens, tokens.size()), 5u);
    EXPECT_EQ(NumFound(pools, tokens, 5 * block_tokens), 5u);
    EXPECT_EQ(NumFound(pools, tokens, 5 * block_tokens - 1), 4u);
    for (uint32_t changed = 0; changed < 5 * block_tokens; ++changed) {
      Tokens other = tokens;
      other[changed] = 0;
      EXPECT_EQ(NumFound(pools, other, other.size()), changed / block_tokens) << changed;
    }
    // The same tokens one block later are another prefix.
    const Tokens later(tokens.begin() + block_tokens, tokens.end());
    EXPECT_EQ(NumFound(pools, later, later.size()), 0u);
    EXPECT_EQ(NumFound(pools, tokens, tokens.size(), /*scope=*/1), 0u);
  }
}

TEST(KvPoolsTest, ABeginningIsUsableWhereTheWindowAfterItIsThere) {
  KvPools pools(PoolLimits(4, 9, 20, 20));
  const Tokens tokens = Counting(24);
  SequenceBlocks blocks(pools, /*publishes=*/true);
  ASSERT_TRUE(blocks.Extend(24));
  blocks.Publish(tokens);
  blocks.ReleaseBefore(24);  // sees 16..24
  EXPECT_EQ(blocks.num_held(kWindowGroup), 2u);
  EXPECT_EQ(pools.pools[kWindowGroup].num_cached(), 4u);
  // The window's block 2 goes.
  pools.pools[kWindowGroup].Forget(pools.tree->window_block(blocks.table(kGlobalGroup)[2]));
  pools.tree->DropWindowBlock(blocks.table(kGlobalGroup)[2]);
  CachedPrefix found;
  const auto usable = [&](uint64_t max_positions) {
    pools.Find(0, tokens, max_positions, found);
    return found.nodes.size();
  };
  EXPECT_EQ(usable(24), 6u);  // position 24 sees 16..24
  EXPECT_EQ(found.first_window, 4u);
  EXPECT_EQ(usable(23), 5u);  // 20 sees 12..20
  EXPECT_EQ(found.first_window, 3u);
  EXPECT_EQ(usable(19), 2u);  // 16 would see 8..16, 12 4..12; 8 sees 0..8
  EXPECT_EQ(found.first_window, 0u);
}

TEST(KvPoolsTest, TheEndIsGivenUpBeforeTheBeginning) {
  KvPools pools(PoolLimits(4, 100, 6, 6));
  const Tokens tokens = Counting(16);
  Serve(pools, tokens);
  for (uint32_t left = 4; left > 0; --left) {
    EXPECT_EQ(NumFound(pools, tokens, 16), left);
    SequenceBlocks other(pools);
    ASSERT_TRUE(other.Extend(4 * (6 - left + 1)));
    EXPECT_EQ(NumFound(pools, tokens, 16), left - 1);
    EXPECT_EQ(pools.num_evicted[kGlobalGroup], 4 - left + 1);
  }
}

TEST(KvPoolsTest, WhatWasUsedLastStaysLongest) {
  KvPools pools(PoolLimits(4, 100, 4, 4));
  const Tokens first = Counting(8, 1), second = Counting(8, 50);
  Serve(pools, first);
  Serve(pools, second);
  CachedPrefix found;
  pools.Find(0, first, 8, found);
  {
    SequenceBlocks again(pools, true);
    again.Share(found);
    EXPECT_EQ(pools.pools[kGlobalGroup].num_used(), 2u);
  }
  SequenceBlocks other(pools);
  ASSERT_TRUE(other.Extend(8));
  EXPECT_EQ(NumFound(pools, first, 8), 2u);
  EXPECT_EQ(NumFound(pools, second, 8), 0u);
}

TEST(KvPoolsTest, OfEqualBlocksTheFirstIsKept) {
  KvPools pools(PoolLimits(4, 100, 10, 10));
  const Tokens tokens = Counting(9);
  SequenceBlocks first(pools, true);
  SequenceBlocks second(pools, true);
  ASSERT_TRUE(first.Extend(9));
  ASSERT_TRUE(second.Extend(9));
  first.Publish(tokens);
  second.Publish(tokens);
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    for (const uint32_t i : {0u, 1u}) EXPECT_EQ(first.table(group)[i], second.table(group)[i]);
    EXPECT_NE(first.table(group)[2], second.table(group)[2]);
    EXPECT_EQ(pools.pools[group].num_used(), 4u);
    EXPECT_EQ(pools.pools[group].num_holders(first.table(group)[0]), 2u);
  }
  first.FreeAll();
  EXPECT_EQ(pools.pools[kGlobalGroup].num_cached(), 0u);
  second.FreeAll();
  EXPECT_EQ(pools.pools[kGlobalGroup].num_cached(), 2u);
}

TEST(KvPoolsTest, ALostWindowBlockIsReplacedByTheOneComputedAnew) {
  KvPools pools(PoolLimits(4, 100, 10, 2));
  const Tokens tokens = Counting(8);
  Serve(pools, tokens);
  {
    SequenceBlocks other(pools);
    ASSERT_TRUE(other.Extend(4));
  }
  EXPECT_EQ(NumFound(pools, tokens, 8), 1u);
  Serve(pools, tokens);
  EXPECT_EQ(NumFound(pools, tokens, 8), 2u);
  EXPECT_EQ(pools.tree->size(), 2u);
}

TEST(KvPoolsTest, FindsEarlierWindowBlocksIfAllAreThere) {
  KvPools pools(PoolLimits(4, 2, 10, 3));
  {
    SequenceBlocks blocks(pools, true);
    ASSERT_TRUE(blocks.Extend(12));
    blocks.Publish(Counting(12));
    blocks.ReleaseBefore(12);  // sees 11 and 12: entry 2 on
  }
  CachedPrefix found;
  const auto first_window = [&](uint32_t first_seen) {
    pools.Find(0, Counting(13), 12, found);
    EXPECT_EQ(found.first_window, 2u);
    const bool all = pools.FindWindowFrom(first_seen, found);
    EXPECT_EQ(found.nodes.size(), 3u);
    return all ? static_cast<int>(found.first_window) : -1;
  };
  EXPECT_EQ(first_window(0), 0);
  EXPECT_EQ(first_window(5), 1);
  EXPECT_EQ(first_window(11), 2);
  SequenceBlocks other(pools);
  ASSERT_TRUE(other.Extend(8));  // in the place of the first two
  EXPECT_EQ(first_window(5), -1);
  EXPECT_EQ(found.first_window, 2u);
  EXPECT_EQ(first_window(8), 2);
}

TEST(KvPoolsTest, BlocksWaitToBePublishedUnlessTheirRoomIsNeeded) {
  KvPools pools(PoolLimits(4, 4, 10, 10));
  SequenceBlocks blocks(pools, true);
  ASSERT_TRUE(blocks.Extend(16));
  blocks.ReleaseBefore(16);  // sees 13..16: entry 3 on
  EXPECT_EQ(blocks.num_held(kWindowGroup), 4u);
  blocks.Publish(Counting(8));
  blocks.ReleaseBefore(16);
  EXPECT_EQ(blocks.num_held(kWindowGroup), 2u);
  EXPECT_TRUE(blocks.ReleaseUnpublished());
  EXPECT_FALSE(blocks.ReleaseUnpublished());
  EXPECT_EQ(blocks.num_held(kWindowGroup), 1u);
  blocks.Publish(Counting(16));
  EXPECT_EQ(pools.tree->window_block(blocks.table(kGlobalGroup)[2]), kNoBlock);
  EXPECT_EQ(NumFound(pools, Counting(16), 16), 4u);
  EXPECT_EQ(NumFound(pools, Counting(16), 15), 2u);
}

TEST(KvPoolsTest, WhatIsForgottenIsNotFoundAndItsHoldersPublishNoMore) {
  KvPools pools(PoolLimits(4, 6, 10, 10));
  Serve(pools, Counting(9, 70));
  SequenceBlocks blocks(pools, true);
  ASSERT_TRUE(blocks.Extend(12));
  blocks.Publish(Counting(5));
  pools.ForgetAll();
  blocks.Publish(Counting(12));
  blocks.ReleaseBefore(12);
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    EXPECT_EQ(pools.pools[group].num_cached(), 0u);
  }
  EXPECT_EQ(NumFound(pools, Counting(12), 12), 0u);
  blocks.FreeAll();
  EXPECT_EQ(pools.pools[kGlobalGroup].num_free(), 10u);
  EXPECT_EQ(pools.pools[kWindowGroup].num_free(), 10u);
  Serve(pools, Counting(12));
  EXPECT_EQ(NumFound(pools, Counting(12), 12), 3u);
}

// What lies at a position stands for every token up to it.
class Lives {
 public:
  explicit Lives(uint32_t seed)
      : random_(seed),
        limits_(PoolLimits(1 + random_() % 9, 1 + random_() % 40, 20 + random_() % 60,
                           12 + random_() % 40)),
        pools_(limits_) {
    for (int group = 0; group < kNumKvGroups; ++group) {
      store_[group].resize(limits_.num_blocks[group] * limits_.block_tokens);
    }
  }

  void Run() {
    for (int turn = 0; turn < 3000; ++turn) {
      Life& life = lives_[random_() % 5];
      if (life.blocks == nullptr) {
        Begin(life);
      } else if (random_() % 12 == 0) {
        life.blocks.reset();
      } else {
        Grow(life);
      }
      if (random_() % 500 == 0) pools_.ForgetAll();
      Check();
      CheckVersion();
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_GT(pools_.num_evicted[kGlobalGroup] + pools_.num_evicted[kWindowGroup], 0u);
  }
  uint64_t num_found() const { return num_found_; }

 private:
  struct Life {
    std::unique_ptr<SequenceBlocks> blocks;
    Tokens tokens;
    uint32_t num_computed = 0;
    CachedPrefix found;  // of lives_[0], at `version`
    uint64_t version = 0;
  };

  // Positions that differ in few tokens, so that prefixes are often equal.
  void Begin(Life& life) {
    life.tokens.resize(1 + random_() % 150);
    life.found = {};
    for (uint32_t& token : life.tokens) token = random_() % 25 == 0;
    life.blocks = std::make_unique<SequenceBlocks>(pools_, random_() % 10 != 0);
    CachedPrefix found;
    pools_.Find(0, life.tokens, life.tokens.size() - 1, found);
    life.blocks->Share(found);
    life.num_computed = static_cast<uint32_t>(found.nodes.size()) * limits_.block_tokens;
    num_found_ += life.num_computed;
  }

  void Grow(Life& life) {
    SequenceBlocks& blocks = *life.blocks;
    const auto end = static_cast<uint32_t>(
        std::min<size_t>(life.tokens.size(), life.num_computed + 1 + random_() % 30));
    blocks.ReleaseBefore(life.num_computed);
    if (random_() % 3 == 0) blocks.ReleaseUnpublished();
    if (!blocks.Extend(end)) return;
    for (uint32_t p = life.num_computed; p < end; ++p) Compute(life, p);
    life.num_computed = end;
    if (random_() % 3 != 0) blocks.Publish(std::span(life.tokens).first(end));
  }

  void Compute(const Life& life, uint32_t position) {
    const std::string seen(life.tokens.begin(), life.tokens.begin() + position + 1);
    for (int group = 0; group < kNumKvGroups; ++group) {
      const auto table = life.blocks->table(static_cast<KvGroup>(group));
      const auto at = [&](uint32_t p) -> std::string& {
        return store_[group][table[p / limits_.block_tokens] * limits_.block_tokens +
                             p % limits_.block_tokens];
      };
      const uint32_t block = table[position / limits_.block_tokens];
      ASSERT_EQ(pools_.pools[group].num_holders(block), 1u) << "written while shared";
      ASSERT_FALSE(pools_.pools[group].kept(block)) << "written while published";
      at(position) = seen;
      const uint32_t window = limits_.sliding_window;
      for (uint32_t p = group == kWindowGroup && position >= window ? position - window + 1 : 0;
           p < position; ++p) {
        ASSERT_EQ(at(p), seen.substr(0, p + 1)) << "group " << group << " position " << p;
      }
    }
  }

  void Check() {
    for (int group = 0; group < kNumKvGroups; ++group) {
      const KvBlockPool& pool = pools_.pools[group];
      std::vector<uint32_t> holders(pool.num_blocks());
      for (const Life& life : lives_) {
        if (life.blocks == nullptr) continue;
        for (const uint32_t block : life.blocks->table(static_cast<KvGroup>(group))) {
          if (block != kNoBlock) ++holders[block];
        }
      }
      uint32_t used = 0, cached = 0;
      for (uint32_t block = 0; block < pool.num_blocks(); ++block) {
        ASSERT_EQ(pool.num_holders(block), holders[block]);
        used += holders[block] > 0;
        cached += holders[block] == 0 && pool.kept(block);
        if (group == kGlobalGroup) {
          ASSERT_EQ(pools_.tree->contains(block), pool.kept(block));
        } else if (pool.kept(block)) {
          ASSERT_EQ(pools_.tree->window_block(pools_.tree->NodeOfWindowBlock(block)), block);
        }
      }
      ASSERT_EQ(pool.num_used(), used);
      ASSERT_EQ(pool.num_cached(), cached);
      ASSERT_EQ(pool.num_free() + cached + used, pool.num_blocks());
    }
  }

  // The result changes with the tree's version alone.
  void CheckVersion() {
    Life& life = lives_[0];
    if (life.blocks == nullptr) return;
    const CachedPrefix before = std::exchange(life.found, {});
    pools_.Find(0, life.tokens, life.tokens.size(), life.found);
    const uint64_t version = std::exchange(life.version, pools_.tree->version());
    if (version != life.version || before.nodes.empty()) return;
    ASSERT_EQ(before.nodes, life.found.nodes);
    ASSERT_EQ(before.first_window, life.found.first_window);
  }

  std::mt19937 random_;
  StepLimits limits_;
  KvPools pools_;
  std::vector<std::string> store_[kNumKvGroups];
  Life lives_[5];
  uint64_t num_found_ = 0;
};

TEST(KvPoolsTest, RandomLivesShareWhatIsAlikeAndWriteOnlyTheirOwn) {
  uint64_t num_found = 0;
  for (uint32_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Lives lives(seed);
    lives.Run();
    if (HasFatalFailure()) return;
    num_found += lives.num_found();
  }
  EXPECT_GT(num_found, 10000u) << "the lives no longer share anything";
}

}  // namespace
}  // namespace tandem
