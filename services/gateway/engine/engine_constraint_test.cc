// Answers that follow a constraint, against the toy model without an engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_format.h"
#include "services/gateway/engine/testing/constrained_answers.h"

namespace tandem::gateway {
namespace {

using constraint::SourceKind;
using testing::Compile;
using testing::Constrained;
using testing::ExpectAnswersFit;
using testing::ExpectedTokens;
using testing::FakeExecutorOptions;
using testing::GreedyRequest;
using testing::kPattern;
using testing::kSchema;
using testing::MakeEngine;
using testing::StepsOf;
using testing::StreamReader;
using testing::ToyLimits;

// Answers of an executor that takes masks before a step begins, or while it runs; with guesses of the
// device that are wrong, one in so many.
struct Masks {
  bool late = false;
  uint32_t wrong_guess_in = 0;  // 0: none
};
class ConstrainedAnswersTest : public ::testing::TestWithParam<Masks> {
 protected:
  ConstrainedAnswersTest() {
    fake_.takes_late_masks = GetParam().late;
    fake_.wrong_guess_in = GetParam().wrong_guess_in;
    options_.min_recovery_pause = absl::Milliseconds(1);
  }
  // What the engine's thread does at once; beyond it other threads do: none, all, and some.
  static constexpr uint64_t kQuick[] = {UINT64_MAX, 300, 1, 0};

  FakeExecutorOptions fake_;
  EngineOptions options_;
};

TEST_P(ConstrainedAnswersTest, EveryOneIsTheOneWithoutAnEngine) {
  for (const uint64_t quick : kQuick) {
    options_.quick_constraint_work = quick;
    ExpectAnswersFit(fake_, options_);
  }
}

TEST_P(ConstrainedAnswersTest, AreTheSameThroughLostWorkers) {
  fake_.on_step = [](const StepBatch& step) {
    return step.header.step_id % 9 == 5 ? absl::UnavailableError("gpu0 is gone") : absl::OkStatus();
  };
  for (const uint64_t quick : kQuick) {
    options_.quick_constraint_work = quick;
    ExpectAnswersFit(fake_, options_);
  }
}

TEST_P(ConstrainedAnswersTest, AreTheSameWhenSequencesArePreempted) {
  fake_.limits.num_blocks[kGlobalGroup] = fake_.limits.num_blocks[kWindowGroup] = 34;
  for (const uint64_t quick : kQuick) {
    options_.quick_constraint_work = quick;
    EXPECT_GT(ExpectAnswersFit(fake_, options_).preemptions(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Masks, ConstrainedAnswersTest,
                         ::testing::Values(Masks{}, Masks{.late = true},
                                           Masks{.late = true, .wrong_guess_in = 4},
                                           Masks{.late = true, .wrong_guess_in = 1}),
                         [](const auto& masks) {
                           return absl::StrFormat("%sWrong%d", masks.param.late ? "Late" : "First",
                                                  masks.param.wrong_guess_in);
                         });

TEST(EngineConstraintTest, OtherSequencesStillQueueTheirSteps) {
  auto engine = MakeEngine();
  StreamReader free, bound;
  const EngineRequest neighbour = GreedyRequest(1, 10, 200);
  ASSERT_TRUE(engine->Submit(neighbour, free.stream()).ok());
  ASSERT_TRUE(
      engine
          ->Submit(Constrained(2, 0.0f, Compile(SourceKind::kJsonSchema, kSchema)), bound.stream())
          .ok());
  EXPECT_TRUE(bound.ReadToEnd().status.ok());
  EXPECT_TRUE(free.ReadToEnd().status.ok());
  EXPECT_EQ(free.tokens(), ExpectedTokens(neighbour, ToyLimits()));
  EXPECT_GE(StepsOf(*engine).steps_queued(), 150u);
}

// Text that must follow is not computed step by step.
TEST(EngineConstraintTest, ForcedTokensTakeNoStepsOfTheirOwn) {
  auto engine = MakeEngine();
  StreamReader reader;
  ASSERT_TRUE(
      engine
          ->Submit(Constrained(3, 1.0f, Compile(SourceKind::kRegex, "(a|b)zzzzyyyyxxxx(c|d)wwww")),
                   reader.stream())
          .ok());
  ASSERT_TRUE(reader.ReadToEnd().status.ok());
  EXPECT_EQ(reader.end->reason, v1::FINISH_REASON_STOP);
  EXPECT_EQ(reader.text.size(), 18u) << reader.text;
  EXPECT_EQ(reader.tokens().size(), 18u);
  EXPECT_EQ(StepsOf(*engine).steps(), 2u);
}

TEST(EngineConstraintTest, AnAnswerWithoutAChoiceTakesThePromptAlone) {
  auto engine = MakeEngine();
  StreamReader reader;
  ASSERT_TRUE(
      engine->Submit(Constrained(3, 1.0f, Compile(SourceKind::kChoices, "zebra")), reader.stream())
          .ok());
  ASSERT_TRUE(reader.ReadToEnd().status.ok());
  EXPECT_EQ(reader.text, "zebra");
  EXPECT_EQ(reader.end->reason, v1::FINISH_REASON_STOP);
  EXPECT_EQ(StepsOf(*engine).steps(), 1u);
  EXPECT_EQ(StepsOf(*engine).completion_tokens(), reader.tokens().size());
}

TEST(EngineConstraintTest, LimitsAndStopTextsCutForcedText) {
  auto engine = MakeEngine();
  const auto pattern = Compile(SourceKind::kRegex, "(a|b)zzzzyyyyxxxx");
  for (const uint32_t max_tokens : {0u, 1u, 4u, 13u}) {
    SCOPED_TRACE(max_tokens);
    EngineRequest request = Constrained(4, 0.0f, pattern);
    request.max_tokens = max_tokens;
    StreamReader reader;
    ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
    ASSERT_TRUE(reader.ReadToEnd().status.ok()) << reader.end->status;
    EXPECT_EQ(reader.tokens().size(), max_tokens);
    const bool whole = max_tokens == 13;  // the last token completes the text
    EXPECT_EQ(reader.end->reason, whole ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH);
    EXPECT_EQ(reader.text.size(), max_tokens);
  }
  for (const uint32_t max_tokens : {11u, 12u}) {  // all of them forced
    EngineRequest all = Constrained(4, 0.0f, Compile(SourceKind::kChoices, "zzzzyyyyxxxx"));
    all.max_tokens = max_tokens;
    StreamReader reader;
    ASSERT_TRUE(engine->Submit(all, reader.stream()).ok());
    EXPECT_EQ(reader.ReadToEnd().reason,
              max_tokens == 12 ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH);
    EXPECT_EQ(reader.text.size(), max_tokens);
  }
  EngineRequest request = Constrained(4, 0.0f, Compile(SourceKind::kChoices, "zzzzyyyyxxxx"));
  request.max_tokens = 5;
  StreamReader forced;
  ASSERT_TRUE(engine->Submit(request, forced.stream()).ok());
  EXPECT_EQ(forced.ReadToEnd().reason, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(forced.text, "zzzzy");
  request = Constrained(4, 0.0f, pattern);
  request.stops = {"yy"};
  StreamReader stopped;
  ASSERT_TRUE(engine->Submit(request, stopped.stream()).ok());
  EXPECT_EQ(stopped.ReadToEnd().reason, v1::FINISH_REASON_STOP);
  EXPECT_THAT(stopped.text, ::testing::EndsWith("zzzz"));
}

TEST(EngineConstraintTest, AGrammarBeyondItsBoundsEndsItsOwnAnswerAlone) {
  auto engine = MakeEngine();
  StreamReader bad, good;
  const EngineRequest neighbour = GreedyRequest(1, 10, 60);
  ASSERT_TRUE(engine->Submit(neighbour, good.stream()).ok());
  ASSERT_TRUE(engine
                  ->Submit(Constrained(2, 0.0f,
                                       Compile(SourceKind::kRegex, kPattern,
                                               {.cache_bytes = 0, .memory_bytes = 1})),
                           bad.stream())
                  .ok());
  EXPECT_EQ(bad.ReadToEnd().status.code(), absl::StatusCode::kInvalidArgument) << bad.text;
  ASSERT_TRUE(good.ReadToEnd().status.ok());
  EXPECT_EQ(good.tokens(), ExpectedTokens(neighbour, ToyLimits()));
}

}  // namespace
}  // namespace tandem::gateway
