// Guesses for answers that follow a constraint change no token.
#include <gtest/gtest.h>

#include "services/gateway/engine/testing/constrained_answers.h"
#include "services/gateway/speculation/testing/scripted_drafter.h"

namespace tandem::gateway {
namespace {

using testing::ExpectAnswersFit;
using testing::ExpectedConstrained;
using testing::ExpectedTokens;
using testing::FakeExecutorOptions;
using testing::MakeEngine;
using testing::MixedRequests;
using testing::StreamReader;
using testing::ToyLimits;

// A drafter that knows the answers, and guesses so many of their tokens right.
EngineOptions DraftedOptions(double right) {
  EngineOptions options{.max_sequences = 8, .max_rows = 64, .chunk_rows = 16, .max_waiting = 1000};
  options.min_recovery_pause = absl::Milliseconds(1);
  options.step_seconds = [](uint32_t) { return 1.0; };  // every guess pays
  options.quick_constraint_work = UINT64_MAX;
  options.make_drafters =
      [right](const Executor&,
              const Executor::Progress&) -> absl::StatusOr<std::vector<std::unique_ptr<Drafter>>> {
    auto drafter = std::make_unique<testing::ScriptedDrafter>(
        testing::Script{.right = right, .vocab_size = ToyLimits().vocab_size});
    for (const EngineRequest& request : MixedRequests()) {
      drafter->Teach(request.prompt, request.constraint != nullptr
                                         ? ExpectedConstrained(request)
                                         : ExpectedTokens(request, ToyLimits()));
    }
    std::vector<std::unique_ptr<Drafter>> drafters;
    drafters.push_back(std::move(drafter));
    return drafters;
  };
  return options;
}

TEST(DraftedConstraintTest, GuessesChangeNoTokenAndSaveSteps) {
  const uint64_t plain = ExpectAnswersFit({}, {}).steps();
  for (const double right : {1.0, 0.6, 0.1}) {
    SCOPED_TRACE(right);
    const v1::SchedulerStatus status = ExpectAnswersFit({}, DraftedOptions(right));
    EXPECT_GT(status.drafters(0).accepted_tokens(), 0u);
    if (right == 1.0) {
      EXPECT_EQ(status.drafters(0).accepted_tokens(), status.drafters(0).drafted_tokens());
      EXPECT_LT(status.steps(), plain);
    }
  }
}

TEST(DraftedConstraintTest, GuessesOfOneAnswerHaveTheMasksOfTheirPlaces) {
  // Alone: every accepted guess is of this answer.
  for (const EngineRequest& request : MixedRequests()) {
    if (request.constraint == nullptr) continue;
    auto engine = MakeEngine({}, DraftedOptions(1.0));
    StreamReader reader;
    ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
    const StreamEnd& end = reader.ReadToEnd();
    EXPECT_EQ(reader.tokens(), ExpectedConstrained(request));
    EXPECT_EQ(end.usage.rejected_prediction_tokens(), 0u);
    // The first token is the prompt's; plain steps are measured before the first guess.
    if (reader.tokens().size() > 20) {
      EXPECT_GT(end.usage.accepted_prediction_tokens(), 3u) << reader.text;
    }
  }
}

TEST(DraftedConstraintTest, GuessesChangeNoTokenWithLostWorkersPreemptionsAndSlowMasks) {
  for (const uint64_t quick : {UINT64_MAX, uint64_t{0}}) {
    FakeExecutorOptions fake;
    fake.limits.num_blocks[kGlobalGroup] = 34;
    fake.limits.num_blocks[kWindowGroup] = 34;
    fake.on_step = [](const StepBatch& step) {
      return step.header.step_id % 19 == 5 ? absl::UnavailableError("gpu0 is gone")
                                           : absl::OkStatus();
    };
    EngineOptions options = DraftedOptions(0.7);
    options.quick_constraint_work = quick;
    const v1::SchedulerStatus status = ExpectAnswersFit(fake, options);
    EXPECT_GT(status.preemptions(), 0u);
    EXPECT_GT(status.drafters(0).accepted_tokens(), 0u) << "at least of free answers";
  }
}

}  // namespace
}  // namespace tandem::gateway
