// Where Vision runs, and which decoders take pictures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/common/plan/planner_test_workers.h"

namespace tandem::planner_test {
namespace {

using ::testing::HasSubstr;

ModelConfig SeeingConfig() {
  ModelConfig config = Config(6, 256);
  config.vision = SmallVision(config);
  return config;
}

WorkerDescription Seeing(WorkerDescription worker) {
  worker.stages.push_back(StageKind::kVision);
  worker.takes_pictures = true;
  return worker;
}

absl::StatusOr<Plan> Vision(const std::vector<WorkerDescription>& workers,
                            const PlacementPolicy& policy = {}) {
  return MakeVisionPlan(SeeingConfig(), {DType::kF16}, workers, policy);
}

std::string WhyNot(const std::vector<WorkerDescription>& workers,
                   const PlacementPolicy& policy = {}) {
  return std::string(Vision(workers, policy).status().message());
}

TEST(PlannerVisionTest, VisionIsTheOnlySegmentOfAPlanOfItsOwn) {
  const auto plan = Vision({Gpu("gpu0"), Seeing(Gpu("gpu1"))});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->workers.size(), 1u);
  EXPECT_EQ(plan->workers[0].name, "gpu1");
  ASSERT_EQ(plan->segments.size(), 1u);
  EXPECT_EQ(plan->segments[0].first_ordinal, VisionOrdinal(6));
  EXPECT_EQ(plan->segments[0].last_ordinal, VisionOrdinal(6));
  EXPECT_EQ(plan->segments[0].inputs | plan->segments[0].outputs, kNone);
  EXPECT_EQ(DescribeSegment(plan->segments[0], 6), "Vision");
  EXPECT_EQ(DescribePlacement(*plan, SeeingConfig()), "everything on gpu1 (llvmpipe)");
}

TEST(PlannerVisionTest, PoliciesHoldForVisionToo) {
  const std::vector<WorkerDescription> both = {Seeing(SoftwareGpu("soft0")), Seeing(Gpu("gpu0"))};
  EXPECT_EQ(Vision(both)->workers[0].name, "gpu0");
  EXPECT_EQ(Vision(both, {.gpu = GpuPolicy::kSoftware})->workers[0].name, "soft0");
  EXPECT_THAT(WhyNot({Seeing(SoftwareGpu())}, {.gpu = GpuPolicy::kRequire}),
              HasSubstr("wants a GPU"));
  EXPECT_THAT(WhyNot({Seeing(Npu())}, {.npu = NpuPolicy::kOff}), HasSubstr("npu0 is an NPU"));
  EXPECT_EQ(Vision({Seeing(Npu())})->workers[0].name, "npu0");
  WorkerDescription far = Seeing(Gpu("far0"));
  far.remote = true;
  EXPECT_EQ(Vision({far, Seeing(Gpu("gpu0"))})->workers[0].name, "gpu0");
  EXPECT_EQ(Vision({far})->workers[0].name, "far0");
}

TEST(PlannerVisionTest, SaysWhyNobodyRunsIt) {
  EXPECT_THAT(WhyNot({}), HasSubstr("Vision: no worker can run it: none is connected"));
  EXPECT_THAT(WhyNot({Gpu()}), HasSubstr("gpu0 has no Vision stage"));
  WorkerDescription other_formats = Seeing(Gpu());
  other_formats.weight_dtypes = {DType::kBf16};
  EXPECT_THAT(WhyNot({other_formats}), HasSubstr("gpu0 does not read f16 weights"));
  const auto text = MakeVisionPlan(Config(6, 256), {DType::kF16}, {Seeing(Gpu())}, {});
  EXPECT_EQ(text.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("has no vision encoder"));
}

// A worker need not run Vision to run the decoder.
TEST(PlannerVisionTest, EveryWorkerOfTheDecoderMustTakePictures) {
  EXPECT_EQ(MustPlan(SeeingConfig(), {Seeing(Gpu())}, {}).why_no_pictures(), "");
  EXPECT_EQ(MustPlan(SeeingConfig(), {Gpu()}, {}).why_no_pictures(),
            "gpu0 does not take the rows of pictures");
  EXPECT_EQ(MustPlan(SeeingConfig(), {Seeing(Gpu()), Npu()}, {}).why_no_pictures(),
            "npu0 does not take the rows of pictures");
}

}  // namespace
}  // namespace tandem::planner_test
