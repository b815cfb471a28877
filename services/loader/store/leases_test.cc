#include "services/loader/store/leases.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "services/common/base/shared_memory.h"

namespace tandem::loader {
namespace {

// Of two regions, without dmabufs.
std::shared_ptr<const ResidentModel> MakeModel() {
  auto model = std::make_shared<ResidentModel>();
  model->model_id = "a model";
  for (const uint64_t bytes : {4096u, 8192u}) {
    model->regions.push_back(
        {.fd = CreateSharedMemory("weights", bytes).value(), .dmabuf_fd = {}, .bytes = bytes});
  }
  return model;
}

absl::StatusCode CodeOf(const auto& result) { return result.status().code(); }

TEST(LeasesTest, TokensAreLongAndNeverTheSame) {
  Leases leases({});
  const auto model = MakeModel();
  std::set<std::string> tokens;
  for (int i = 0; i < 100; ++i) {
    const LeaseGrant grant = leases.Grant(model, "test").value();
    EXPECT_EQ(grant.token.size(), kLeaseTokenBytes);
    EXPECT_TRUE(tokens.insert(grant.token).second);
  }
}

TEST(LeasesTest, ALeaseGivesItsOwnRegionsAndNoOthers) {
  Leases leases({});
  const auto model = MakeModel();
  const LeaseGrant mine = leases.Grant(model, "mine").value();
  const LeaseGrant other = leases.Grant(model, "other").value();
  const uint32_t id = leases.CreateRegion(mine.token, 5000, "exchange").value();
  const auto region = leases.GetRegion({mine.token, RegionKind::kLeaseRegion, id});
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(region->bytes, 8192u) << "whole pages";
  EXPECT_EQ(CodeOf(leases.GetRegion({other.token, RegionKind::kLeaseRegion, id})),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(leases.GetRegion({mine.token, RegionKind::kWeights, 1}).value().bytes, 8192u);
  EXPECT_EQ(CodeOf(leases.GetRegion({mine.token, RegionKind::kWeightsDmabuf, 1})),
            absl::StatusCode::kNotFound);
  for (const uint32_t index : {2u, 0xFFFFFFFFu}) {
    EXPECT_EQ(CodeOf(leases.GetRegion({mine.token, RegionKind::kWeights, index})),
              absl::StatusCode::kNotFound);
  }
}

TEST(LeasesTest, TheLastLeaseOfAModelHoldsItUntilItsRelease) {
  Leases leases({});
  std::shared_ptr<const ResidentModel> model = MakeModel();
  const std::weak_ptr<const ResidentModel> seen = model;
  const std::string token = leases.Grant(std::move(model), std::string(1000, 'h')).value().token;
  ASSERT_TRUE(leases.CreateRegion(token, 4096, "exchange").ok());
  ASSERT_EQ(leases.GetStatus().size(), 1u);
  EXPECT_EQ(leases.GetStatus()[0].model_id, "a model");
  EXPECT_EQ(leases.GetStatus()[0].holder.size(), 128u);
  EXPECT_EQ(leases.GetStatus()[0].exchange_bytes, 4096u);
  EXPECT_EQ(leases.GetStatus()[0].num_regions, 1u);
  EXPECT_FALSE(seen.expired());
  leases.Release(token);
  leases.Release(token);
  EXPECT_TRUE(seen.expired());
  EXPECT_TRUE(leases.GetStatus().empty());
  EXPECT_EQ(CodeOf(leases.GetRegion({token, RegionKind::kWeights, 0})),
            absl::StatusCode::kNotFound);
}

TEST(LeasesTest, LimitsHold) {
  Leases leases({.max_bytes = 16384, .max_regions = 3, .max_leases = 2});
  const auto model = MakeModel();
  const LeaseGrant grant = leases.Grant(model, "one").value();
  EXPECT_TRUE(leases.Grant(model, "two").ok());
  EXPECT_EQ(CodeOf(leases.Grant(model, "three")), absl::StatusCode::kResourceExhausted);
  const auto create = [&](uint64_t bytes) { return leases.CreateRegion(grant.token, bytes, "x"); };
  EXPECT_EQ(CodeOf(create(0)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(create(16385)), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(create(8192).ok());
  EXPECT_EQ(CodeOf(create(8193)), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(create(4096).ok());
  EXPECT_TRUE(create(4096).ok());
  EXPECT_EQ(CodeOf(create(1)), absl::StatusCode::kResourceExhausted) << "a fourth region";
  EXPECT_EQ(CodeOf(leases.CreateRegion("wrong", 4096, "x")), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem::loader
