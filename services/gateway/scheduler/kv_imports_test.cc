#include "services/gateway/scheduler/kv_imports.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tandem::gateway {
namespace {

constexpr uint32_t kBlockTokens = 4, kWindow = 6;

StepLimits Limits(uint32_t global, uint32_t window) {
  StepLimits limits;
  limits.block_tokens = kBlockTokens;
  limits.sliding_window = kWindow;
  limits.num_blocks[kGlobalGroup] = global;
  limits.num_blocks[kWindowGroup] = window;
  return limits;
}

std::vector<uint32_t> WholeBlocks(uint32_t num_blocks) {
  std::vector<uint32_t> tokens(num_blocks * kBlockTokens);
  std::iota(tokens.begin(), tokens.end(), 100u);
  return tokens;
}

TEST(KvImportsTest, WhatWasFilledIsFoundAndStaysInTheCache) {
  KvPools pools(Limits(20, 20));
  KvImports imports(pools);
  const std::vector<uint32_t> tokens = WholeBlocks(5);
  // Position 20 sees 15 and later: blocks 3 and 4.
  const uint32_t first_window = FirstWindowBlock(20, kWindow, kBlockTokens);
  ASSERT_EQ(first_window, 3u);
  EXPECT_EQ(imports.Begin(7, 0, tokens, first_window, 7), 0u);
  auto blocks = imports.Extend(7, 2);
  ASSERT_TRUE(blocks.has_value());
  EXPECT_EQ(blocks->ids[kGlobalGroup].size(), 2u);
  EXPECT_TRUE(blocks->ids[kWindowGroup].empty());
  imports.Publish(7);
  blocks = imports.Extend(7, 5);
  ASSERT_TRUE(blocks.has_value());
  EXPECT_EQ(blocks->ids[kGlobalGroup].size(), 3u);
  EXPECT_EQ(blocks->ids[kWindowGroup].size(), 2u);
  CachedPrefix found;
  pools.Find(0, tokens, 20, found);
  EXPECT_TRUE(found.nodes.empty()) << "not filled yet";
  imports.Publish(7);
  imports.End(7);
  EXPECT_FALSE(imports.contains(7));
  pools.Find(0, tokens, 20, found);
  EXPECT_EQ(found.nodes.size(), 5u);
  EXPECT_EQ(found.first_window, 3u);
  EXPECT_EQ(pools.pools[kGlobalGroup].num_used(), 0u);
  EXPECT_EQ(pools.pools[kWindowGroup].num_used(), 0u);
  pools.Find(1, tokens, 20, found);
  EXPECT_TRUE(found.nodes.empty()) << "another scope";
}

TEST(KvImportsTest, BlocksThatAreThereAreNotImportedAgain) {
  KvPools pools(Limits(20, 20));
  KvImports imports(pools);
  imports.Begin(1, 0, WholeBlocks(5), 3, 1);
  ASSERT_TRUE(imports.Extend(1, 5).has_value());
  imports.Publish(1);
  imports.End(1);
  // Blocks 0 to 4 are there, 4 with its window; of a longer prompt, whose window begins later, all of
  // them are of use.
  EXPECT_EQ(imports.Begin(2, 0, WholeBlocks(9), 7, 2), 5u);
  // Of one that parts from it, whose window begins earlier, those before its window.
  std::vector<uint32_t> other = WholeBlocks(4);
  other.back() = 1;
  EXPECT_EQ(imports.Begin(3, 0, other, 2, 3), 2u);
  const auto blocks = imports.Extend(3, 4);
  ASSERT_TRUE(blocks.has_value());
  EXPECT_EQ(blocks->ids[kGlobalGroup].size(), 2u);
  EXPECT_EQ(blocks->ids[kWindowGroup].size(), 2u);
  imports.Publish(3);
  CachedPrefix found;
  pools.Find(0, other, 16, found);
  EXPECT_EQ(found.nodes.size(), 4u);
}

TEST(KvImportsTest, TogetherTheyHoldAtMostHalf) {
  KvPools pools(Limits(8, 8));
  KvImports imports(pools);
  imports.Begin(1, 1, WholeBlocks(3), 1, 1);
  imports.Begin(2, 2, WholeBlocks(3), 1, 2);
  EXPECT_TRUE(imports.Extend(1, 3).has_value());
  EXPECT_FALSE(imports.Extend(2, 3).has_value());
  EXPECT_TRUE(imports.Extend(2, 1).has_value());
  EXPECT_FALSE(imports.Extend(2, 2).has_value());
  EXPECT_TRUE(imports.DropLatest());
  EXPECT_FALSE(imports.contains(2));
  EXPECT_TRUE(imports.contains(1));
  EXPECT_TRUE(imports.DropLatest());
  EXPECT_FALSE(imports.DropLatest());
  EXPECT_EQ(pools.pools[kGlobalGroup].num_free(), 8u) << "what was not filled is not kept";
}

TEST(KvImportsTest, ABlockThatSeveralHoldCountsOnce) {
  KvPools pools(Limits(8, 8));
  KvImports imports(pools);
  imports.Begin(1, 0, WholeBlocks(3), 3, 1);
  ASSERT_TRUE(imports.Extend(1, 3).has_value());
  imports.Publish(1);
  EXPECT_EQ(imports.Begin(2, 0, WholeBlocks(4), 4, 2), 3u);
  EXPECT_TRUE(imports.Extend(2, 4).has_value()) << "four of eight blocks are held";
  imports.Publish(2);
  EXPECT_EQ(imports.Begin(3, 0, WholeBlocks(5), 5, 3), 4u);
  EXPECT_FALSE(imports.Extend(3, 5).has_value());
}

TEST(KvImportsTest, BlocksThatOthersHoldAreWaitedFor) {
  KvPools pools(Limits(8, 8));
  KvImports imports(pools);
  SequenceBlocks running(pools);
  ASSERT_TRUE(running.Extend(6 * kBlockTokens));
  imports.Begin(1, 0, WholeBlocks(3), 3, 1);
  EXPECT_FALSE(imports.Extend(1, 3).has_value());
  running.FreeAll();
  EXPECT_TRUE(imports.Extend(1, 3).has_value());
}

}  // namespace
}  // namespace tandem::gateway
