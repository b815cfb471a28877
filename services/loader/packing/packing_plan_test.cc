#include "services/loader/packing/packing_plan.h"

#include <gtest/gtest.h>

#include <set>

#include "services/loader/packing/fake_model_source.h"
#include "services/loader/packing/pack_rows.h"

namespace tandem::loader {
namespace {

constexpr auto kNoLimit = 1ull << 30;

DType AllQ8(WeightRole, SourcePart) { return DType::kQ8_0; }

TEST(PackingPlanTest, EveryTensorIsValidWhateverTheRegionLimit) {
  const FakeModelSource source(FakeConfig(), true, AllQ8);
  for (const uint64_t limit : {20480ull, 23456ull, 65536ull, 1ull << 20, 3ull << 20, kNoLimit}) {
    const auto plan = PlanPacking(source.tensors(), source.config(), limit);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->tensors.size(), 1u + 2 * 10 + 1 + 1);
    for (const PlannedTensor& planned : plan->tensors) {
      EXPECT_TRUE(ValidatePackedTensor(planned.tensor, source.config(), plan->region_bytes).ok());
    }
    for (const uint64_t bytes : plan->region_bytes) {
      EXPECT_LE(bytes, limit);
      EXPECT_EQ(bytes % (bytes < kHugePageBytes ? 4096 : kHugePageBytes), 0u) << bytes;
    }
  }
}

TEST(PackingPlanTest, ShardsDoNotOverlap) {
  const FakeModelSource source(FakeConfig(), true, AllQ8);
  const auto plan = PlanPacking(source.tensors(), source.config(), 65536);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> extents;
  for (const PlannedTensor& planned : plan->tensors) {
    for (const Shard& shard : planned.tensor.shards) {
      extents[{shard.region, shard.offset}] = ShardBytes(planned.tensor, shard);
    }
  }
  uint32_t region = 0;
  uint64_t end = 0;
  for (const auto& [place, bytes] : extents) {
    if (place.first != region) end = 0;
    EXPECT_GE(place.second, end);
    region = place.first;
    end = place.second + bytes;
  }
}

TEST(PackingPlanTest, CutsNeverPartAGateFromItsUpAndKeepTilesWhole) {
  ModelConfig config = FakeConfig();
  config.ffn_dim = 1024;
  const FakeModelSource source(config, false, AllQ8);
  for (const uint64_t limit : {36864ull, 102400ull, 204800ull}) {
    const auto plan = PlanPacking(source.tensors(), config, limit);
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (const PlannedTensor& planned : plan->tensors) {
      if (planned.tensor.role != WeightRole::kGateUp) continue;
      EXPECT_GT(planned.tensor.shards.size(), 1u);
      for (const Shard& shard : planned.tensor.shards) {
        EXPECT_EQ(shard.first_row % (limit >= 102400 ? 256 : 128), 0u) << limit;
      }
    }
  }
}

TEST(PackingPlanTest, ALimitBelowOneTileIsRefused) {
  const FakeModelSource source(FakeConfig(), false,
                               [](WeightRole, SourcePart) { return DType::kF32; });
  constexpr uint64_t kTileOfDown = 32 * 512 * 4;
  EXPECT_TRUE(PlanPacking(source.tensors(), source.config(), kTileOfDown).ok());
  const auto refused = PlanPacking(source.tensors(), source.config(), kTileOfDown - 1).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "layer 0 down: 32 rows need 65536 bytes, the region limit is 61440; raise "
            "--max-region-bytes");
}

TEST(PackingPlanTest, MissingDoubledAndMisshapenPartsAreRefused) {
  const auto code_after = [](const std::function<void(std::vector<SourceTensor>&)>& spoil) {
    FakeModelSource source(FakeConfig(), false, AllQ8);
    spoil(source.mutable_tensors());
    return PlanPacking(source.tensors(), source.config(), kNoLimit).status().code();
  };
  EXPECT_EQ(code_after([](auto&) {}), absl::StatusCode::kOk);
  EXPECT_EQ(code_after([](auto& t) { t.erase(t.begin() + 1); }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_after([](auto& t) { t.push_back(t[1]); }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_after([](auto& t) { ++t[1].shape.rows; }), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code_after([](auto& t) { --t[1].num_bytes; }), absl::StatusCode::kInvalidArgument);
}

TEST(PackingPlanTest, RowRangesCoverEveryRowOfEveryPartOnce) {
  const FakeModelSource source(FakeConfig(), true, AllQ8);
  for (const uint64_t limit : {20480ull, 70000ull, kNoLimit}) {
    const auto plan = PlanPacking(source.tensors(), source.config(), limit);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::set<std::tuple<uint32_t, uint32_t, uint64_t>> seen;
    uint32_t region = 0;
    for (const RowRange& range : SplitRows(*plan, source.tensors(), 1000)) {
      const Shard& shard = plan->tensors[range.tensor].tensor.shards[range.shard];
      const PackedPart& part = plan->tensors[range.tensor].parts[range.part];
      EXPECT_GE(shard.region, region) << "regions are filled in order";
      region = shard.region;
      for (uint64_t i = 0; i < range.num_rows; ++i) {
        const uint64_t row = range.first_source_row + i;
        EXPECT_TRUE(seen.insert({range.tensor, range.part, row}).second);
        const uint64_t packed_row = part.first_row + row * part.row_step;
        EXPECT_GE(packed_row, shard.first_row);
        EXPECT_LT(packed_row, shard.first_row + shard.num_rows);
      }
    }
    size_t rows = 0;
    for (const SourceTensor& tensor : source.tensors()) rows += tensor.shape.rows;
    EXPECT_EQ(seen.size(), rows);
  }
}

}  // namespace
}  // namespace tandem::loader
