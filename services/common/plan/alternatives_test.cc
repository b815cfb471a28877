#include "services/common/plan/alternatives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/common/plan/planner_test_workers.h"

namespace tandem::planner_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Placements(const ModelConfig& config,
                                    const std::vector<WorkerDescription>& workers,
                                    const PlacementPolicy& policy, DType weights = DType::kQ4_0) {
  const auto plans = MakeAlternatives(config, {weights}, workers, policy);
  if (!plans.ok()) return {std::string(plans.status().message())};
  std::vector<std::string> placements;
  for (const Plan& plan : *plans) placements.push_back(DescribePlacement(plan, config));
  return placements;
}

const PlacementPolicy kAuto = {.npu = NpuPolicy::kAuto};
constexpr char kOnNpu[] = "Attend x6 on npu0 (Strix), the rest on gpu0 (llvmpipe)";
constexpr char kAllOnGpu[] = "everything on gpu0 (llvmpipe)";

TEST(AlternativesTest, AttendAndOutMayBeOnEitherDevice) {
  EXPECT_THAT(
      Placements(Config(6, 256), {Gpu(), Npu()}, kAuto, DType::kBf16),
      ElementsAre(kOnNpu, "Attend x6 and Out x6 on npu0 (Strix), the rest on gpu0 (llvmpipe)",
                  kAllOnGpu));
}

TEST(AlternativesTest, OutStaysWhereItsWeightsAreRead) {
  EXPECT_THAT(Placements(Config(6, 256), {Gpu(), Npu()}, kAuto), ElementsAre(kOnNpu, kAllOnGpu));
}

TEST(AlternativesTest, ThereIsNoChoiceWithoutAnNpuThatAttends) {
  EXPECT_THAT(Placements(Config(6, 256), {Gpu()}, kAuto), ElementsAre(kAllOnGpu));
  WorkerDescription emulated = Npu();
  emulated.emulated = true;
  EXPECT_THAT(Placements(Config(6, 256), {Gpu(), emulated}, kAuto), ElementsAre(kAllOnGpu));
  EXPECT_THAT(Placements(Config(6, 96), {Gpu(), Npu()}, kAuto), ElementsAre(kAllOnGpu));
}

TEST(AlternativesTest, ThereIsNoChoiceWithoutAGpuThatAttends) {
  WorkerDescription gpu = Gpu();
  std::erase(gpu.stages, StageKind::kAttend);
  EXPECT_THAT(Placements(Config(6, 256), {gpu, Npu()}, kAuto), ElementsAre(kOnNpu));
}

TEST(AlternativesTest, AnExplicitPolicyLeavesNoChoice) {
  EXPECT_THAT(Placements(Config(6, 256), {Gpu(), Npu()}, {.npu = NpuPolicy::kPrefer}),
              ElementsAre(kOnNpu));
  EXPECT_THAT(Placements(Config(6, 256), {Gpu(), Npu()}, {.npu = NpuPolicy::kRequire}),
              ElementsAre(kOnNpu));
  EXPECT_THAT(Placements(Config(6, 256), {Gpu(), Npu()}, {.npu = NpuPolicy::kOff}),
              ElementsAre(kAllOnGpu));
}

TEST(AlternativesTest, WhatIsMissingIsNamedAsByThePlanner) {
  const auto plans = MakeAlternatives(Config(6, 256), {DType::kQ4_0}, {Gpu()}, kAuto);
  ASSERT_TRUE(plans.ok());
  EXPECT_THAT(plans->front().notice, HasSubstr("no NPU worker is connected"));
  EXPECT_THAT(Placements(Config(6, 256), {}, kAuto), ElementsAre(HasSubstr("no GPU worker")));
}

TEST(AlternativesTest, AModelThatSeesKeepsItsSight) {
  ModelConfig config = Config(6, 256);
  config.vision = SmallVision(config);
  WorkerDescription gpu = Gpu();
  gpu.takes_pictures = true;
  WorkerDescription npu = Npu();
  EXPECT_THAT(Placements(config, {gpu, npu}, kAuto), ElementsAre(kAllOnGpu));
  npu.takes_pictures = true;
  EXPECT_THAT(Placements(config, {gpu, npu}, kAuto), ElementsAre(kOnNpu, kAllOnGpu));
  gpu.takes_pictures = npu.takes_pictures = false;
  EXPECT_THAT(Placements(config, {gpu, npu}, kAuto), ElementsAre(kOnNpu, kAllOnGpu));
}

}  // namespace
}  // namespace tandem::planner_test
