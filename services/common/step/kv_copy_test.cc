#include "services/common/step/kv_copy.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

namespace tandem {
namespace {

ModelConfig ThreeLayers() {
  ModelConfig config;
  config.num_layers = 3;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.layer_is_global = {false, true, false};
  return config;
}

StepLimits Limits(DType dtype) {
  StepLimits limits;
  limits.block_tokens = 4;
  limits.num_blocks[kGlobalGroup] = 10;
  limits.num_blocks[kWindowGroup] = 5;
  limits.kv_dtype = dtype;
  limits.kv_area_bytes = 3 * 2 * 2 * 4 * 64 * 2;
  return limits;
}

TEST(KvCopyLayoutTest, PutsTheLayersOfABlockSideBySide) {
  const KvCopyLayout layout(ThreeLayers(), Limits(DType::kF16));
  constexpr uint64_t kHalf = 2 * 4 * 64 * 2;
  EXPECT_EQ(layout.half_bytes(), kHalf);
  EXPECT_EQ(layout.BlockBytes(kGlobalGroup), 2 * kHalf);
  EXPECT_EQ(layout.BlockBytes(kWindowGroup), 4 * kHalf);
  const std::vector<uint32_t> global = {9}, window = {4};
  const KvCopy copy{.blocks = {global, window}};
  EXPECT_EQ(layout.Bytes(copy), 6 * kHalf);
  std::vector<std::tuple<uint32_t, uint32_t, uint64_t>> parts;
  layout.ForEachPart(copy, [&parts](uint32_t layer_idx, uint32_t block, uint64_t offset) {
    parts.emplace_back(layer_idx, block, offset);
  });
  EXPECT_EQ(parts, (std::vector<std::tuple<uint32_t, uint32_t, uint64_t>>{
                       {1, 9, 0}, {0, 4, 2 * kHalf}, {2, 4, 4 * kHalf}}));
}

TEST(KvCopyLayoutTest, TakesThePagesOfTheFormat) {
  const KvCopyLayout layout(ThreeLayers(), Limits(DType::kQ8_0));
  EXPECT_EQ(layout.half_bytes(), 2u * 4 * (64 + 4));
}

TEST(KvCopyLayoutTest, RefusesBlocksThatAreNotThere) {
  const KvCopyLayout layout(ThreeLayers(), Limits(DType::kF16));
  const std::vector<uint32_t> none, last = {4}, beyond = {5}, two = {3, 4},
                                    many = {0, 0, 0, 0, 0, 0};
  EXPECT_TRUE(layout.Check({.blocks = {last, last}}).ok());
  EXPECT_EQ(layout.Check({.blocks = {none, beyond}}).message(),
            "copy of KV block 5, group 1 has 5");
  EXPECT_EQ(layout.Check({.blocks = {none, many}}).message(), "copy of 6 KV blocks, group 1 has 5");
  // 6,144 bytes fit: three blocks of the global layer, or one of each group.
  EXPECT_EQ(layout.Check({.blocks = {none, two}}).message(),
            "copy of 8192 bytes of KV, the area has 6144");
}

}  // namespace
}  // namespace tandem
