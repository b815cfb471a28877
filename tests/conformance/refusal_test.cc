// Inputs that a worker refuses; it goes on working afterwards.
#include <functional>

#include "tests/conformance/worker_suite.h"

namespace tandem::conformance {
namespace {

using testing::HasCode;

class RefusalTest : public WorkerSuite {
 protected:
  void SetUp() override {
    WorkerSuite::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    config_ = testing::MakeConfig({});
    weights_ = testing::RandomWeightSet(config_);
  }

  // Writes a good step of one row.
  void WriteStep(PlanRunner& runner) {
    StepBuilder steps(runner.limits());
    steps.Begin();
    steps.AddRows(steps.AddSequence(), {3});
    ASSERT_OK(runner.WriteAndCheckStep(steps.batch()));
  }

  // Runs a segment of the worker by itself, with nothing done to the step.
  absl::Status Run(PlanRunner& runner, uint32_t segment, uint32_t lane) {
    StepBuilder steps(runner.limits());
    steps.Begin();
    steps.AddRows(steps.AddSequence(), {3});
    const StepBatch step = steps.batch();
    return testing::RunSegment(
               worker(),
               {.segment_index = segment, .lane = lane, .step = &step, .first_of_step = true})
        .status();
  }

  ModelConfig config_;
  std::shared_ptr<const WeightSet> weights_;
};

TEST_F(RefusalTest, SegmentsThatWereNotLoadedAndLanesThatDoNotExist) {
  ASSERT_OK_AND_ASSIGN(const auto runner, RunStages(weights_, {.num_lanes = 2}));
  const auto num_segments = static_cast<uint32_t>(runner->segments().size());
  WriteStep(*runner);
  EXPECT_THAT(Run(*runner, num_segments, 0), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Run(*runner, 0xFFFFFFFF, 0), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Run(*runner, 0, 2), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Run(*runner, 0, 0xFFFFFFFF), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(runner->RunSegment(0));
}

TEST_F(RefusalTest, RunningWithoutAModel) {
  ASSERT_OK_AND_ASSIGN(const auto runner, RunStages(weights_, {}));
  worker().Unload(0);
  EXPECT_THAT(Run(*runner, 0, 0), HasCode(absl::StatusCode::kFailedPrecondition));
  worker().Unload(0);  // twice is once
  EXPECT_OK(worker().CheckHealth());
}

TEST_F(RefusalTest, StagesThatItDoesNotOffer) {
  if (OffersEverything()) GTEST_SKIP() << "it offers every stage";
  EXPECT_THAT(PlanRunner::Create(weights_, {&worker()}, testing::WholeModel(config_), {}).status(),
              HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_OK(RunStages(weights_, {}));
}

// A KV cache of some petabytes.
TEST_F(RefusalTest, MoreCacheThanThereIsMemory) {
  if (!Offers(StageKind::kAttend)) GTEST_SKIP() << "no Attend";
  const auto runner = RunStages(weights_, {.num_blocks = {1u << 31, 1u << 31}});
  EXPECT_THAT(runner.status(), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_OK(RunStages(weights_, {}));
}

TEST_F(RefusalTest, TheFullestStepTheLimitsAllow) {
  const RunLimits limits = {
      .max_rows = 19, .max_sequences = 3, .max_outputs = 19, .max_logit_outputs = 19};
  ASSERT_OK_AND_ASSIGN(const auto runner, RunWhole(weights_, limits));
  StepBuilder steps(runner->limits());
  steps.Begin();
  steps.AddRows(steps.AddSequence(), MakeTokens(config_, 9));
  steps.AddRows(steps.AddSequence(), MakeTokens(config_, 7));
  steps.AddRows(steps.AddSequence(), MakeTokens(config_, 3));
  for (uint32_t row = 0; row < 19; ++row) steps.AddOutput(row);
  steps.set_want_logits(true);
  ASSERT_OK(runner->RunStep(steps.batch()));
  // One more row is refused where the step is read.
  steps.AddRows(steps.AddSequence(), {1});
  EXPECT_THAT(runner->RunStep(steps.batch()), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_F(RefusalTest, DescribesItself) {
  const WorkerDescription& self = worker().description();
  EXPECT_FALSE(self.name.empty());
  EXPECT_FALSE(self.device.empty());
  EXPECT_FALSE(self.stages.empty());
  EXPECT_GE(self.max_rows, 64u);
  EXPECT_LE(self.memory_available_bytes, self.memory_bytes);
}

}  // namespace
}  // namespace tandem::conformance
