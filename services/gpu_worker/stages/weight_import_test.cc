#include "services/gpu_worker/stages/weight_import.h"

#include <gtest/gtest.h>

#include "services/common/testing/status_matchers.h"

namespace tandem::gpu {
namespace {

// A q8_0 matrix of 32 columns whose shards are `rows` rows each, at `offsets` of `region`.
PackedTensor Tensor(uint32_t region, uint64_t rows, const std::vector<uint64_t>& offsets) {
  PackedTensor tensor;
  tensor.role = WeightRole::kDown;
  tensor.shape = {rows * offsets.size(), 32};
  for (size_t i = 0; i < offsets.size(); ++i) {
    tensor.shards.push_back({i * rows, rows, region, offsets[i], DType::kQ8_0});
  }
  return tensor;
}

TEST(CutRegionsTest, JoinsNeighboursAndCutsAtTheLimit) {
  const uint64_t bytes = ShardBytes(DType::kQ8_0, 128, 32);
  ASSERT_LE(bytes, 8192u);
  const PackedTensor tensor = Tensor(0, 128, {0, 8192, 16384});
  ASSERT_OK_AND_ASSIGN(const auto one, CutRegions({&tensor}, 1 << 20, 1 << 20));
  EXPECT_EQ(one, (std::vector<RegionSpan>{{0, 0, 16384 + bytes}}));
  ASSERT_OK_AND_ASSIGN(const auto cut, CutRegions({&tensor}, 16384, 1 << 20));
  EXPECT_EQ(cut, (std::vector<RegionSpan>{{0, 0, 8192 + bytes}, {0, 16384, 16384 + bytes}}));
}

TEST(CutRegionsTest, LeavesLargeGapsOutAndRegionsApart) {
  const uint64_t bytes = ShardBytes(DType::kQ8_0, 128, 32);
  const PackedTensor a = Tensor(1, 128, {1 << 20, 0}), b = Tensor(0, 128, {4096});
  ASSERT_OK_AND_ASSIGN(const auto spans, CutRegions({&a, &b}, 1 << 30, 65536));
  EXPECT_EQ(spans, (std::vector<RegionSpan>{
                       {0, 4096, 4096 + bytes}, {1, 0, bytes}, {1, 1 << 20, (1 << 20) + bytes}}));
}

TEST(CutRegionsTest, RefusesAShardLargerThanAnAllocation) {
  const PackedTensor tensor = Tensor(0, 128, {0});
  const auto spans = CutRegions({&tensor}, 1024, 0);
  EXPECT_THAT(spans.status(), testing::HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_NE(spans.status().message().find("layer 0 down"), std::string::npos);
}

}  // namespace
}  // namespace tandem::gpu
