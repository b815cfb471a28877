// Constrained answers whose masks come while their steps run.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "services/gateway/engine/late_masks.h"
#include "services/gateway/engine/testing/constrained_answers.h"
#include "services/gateway/speculation/testing/scripted_drafter.h"

namespace tandem::gateway {
namespace {

using constraint::SourceKind;
using testing::Compile;
using testing::Constrained;
using testing::ExpectAnswersFit;
using testing::ExpectedConstrained;
using testing::FakeExecutorOptions;
using testing::GreedyRequest;
using testing::MakeEngine;
using testing::MixedRequests;
using testing::StepsOf;
using testing::StreamReader;
using testing::ToyLimits;

FakeExecutorOptions Late(uint32_t wrong_guess_in = 0) {
  FakeExecutorOptions fake;
  fake.takes_late_masks = true;
  fake.wrong_guess_in = wrong_guess_in;
  return fake;
}

TEST(LateMaskTest, AnswersAreTheSameBesideGuesses) {
  for (const double right : {1.0, 0.6}) {
    EngineOptions options{
        .max_sequences = 8, .max_rows = 64, .chunk_rows = 16, .max_waiting = 1000};
    options.step_seconds = [](uint32_t) { return 1.0; };  // every guess pays
    options.make_drafters = [right](const Executor&, const Executor::Progress&)
        -> absl::StatusOr<std::vector<std::unique_ptr<Drafter>>> {
      auto drafter = std::make_unique<testing::ScriptedDrafter>(
          testing::Script{.right = right, .vocab_size = ToyLimits().vocab_size});
      for (const EngineRequest& request : MixedRequests()) {
        if (request.constraint != nullptr) {
          drafter->Teach(request.prompt, ExpectedConstrained(request));
        }
      }
      std::vector<std::unique_ptr<Drafter>> drafters;
      drafters.push_back(std::move(drafter));
      return drafters;
    };
    EXPECT_GT(ExpectAnswersFit(Late(4), options).drafters(0).accepted_tokens(), 0u);
  }
}

// A refused step takes its own requests with it, and the step that was fed by it none.
TEST(LateMaskTest, AStepBehindARefusedOneEndsToo) {
  FakeExecutorOptions fake = Late();
  fake.on_step = [](const StepBatch& step) {
    return step.header.step_id == 12 ? absl::DataLossError("refused") : absl::OkStatus();
  };
  auto engine = MakeEngine(fake);
  const auto text = Compile(SourceKind::kRegex, "[a-z ]{60}");
  const EngineRequest request = Constrained(1, 0.0f, text);
  StreamReader first, second;
  ASSERT_TRUE(engine->Submit(request, first.stream()).ok());
  EXPECT_TRUE(absl::IsDataLoss(first.ReadToEnd().status)) << first.end->status;
  ASSERT_TRUE(engine->Submit(request, second.stream()).ok());
  EXPECT_TRUE(second.ReadToEnd().status.ok()) << second.end->status;
  EXPECT_EQ(second.tokens(), ExpectedConstrained(request));
}

// Where nothing is forced the device never waits for masks, and no row is computed twice.
TEST(LateMaskTest, StepsOfFreeTextAreQueued) {
  std::optional<uint64_t> without;
  for (const bool late : {false, true}) {
    FakeExecutorOptions fake = Late();
    fake.takes_late_masks = late;
    auto engine = MakeEngine(fake);
    const EngineRequest request = Constrained(1, 1.0f, Compile(SourceKind::kRegex, "[a-z ]{90}"));
    StreamReader reader;
    ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
    ASSERT_TRUE(reader.ReadToEnd().status.ok()) << reader.end->status;
    EXPECT_EQ(reader.tokens(), ExpectedConstrained(request));
    const v1::SchedulerStatus status = StepsOf(*engine);
    if (!without.has_value()) {
      without = status.steps();
      EXPECT_EQ(status.steps_queued(), 0u);
      continue;
    }
    EXPECT_LE(status.steps(), *without + 1);  // the last may be of no use
    EXPECT_GE(status.steps_queued() + 2, *without);
    EXPECT_EQ(status.wrong_guesses(), 0u);
  }
}

// Beside a free answer a constrained one has a row in every step; without late masks in every second one.
TEST(LateMaskTest, BesideAFreeAnswerEveryStepHasARow) {
  for (const bool late : {false, true}) {
    std::vector<uint64_t> masked;  // steps with a mask
    FakeExecutorOptions fake;
    fake.takes_late_masks = late;
    fake.limits.context_len = 1 << 12;  // the free answer goes on until it is cancelled
    fake.limits.max_table_len = 1 << 14;
    fake.limits.num_blocks[kGlobalGroup] = 1 << 12;
    fake.limits.num_blocks[kWindowGroup] = 1 << 12;
    fake.on_step = [&](const StepBatch& step) {
      if (step.header.num_masks > 0) masked.push_back(step.header.step_id);
      absl::SleepFor(absl::Milliseconds(1));
      return absl::OkStatus();
    };
    auto engine = MakeEngine(fake);
    StreamReader free, bound;
    ASSERT_TRUE(engine->Submit(GreedyRequest(1, 10, 3000), free.stream()).ok());
    const EngineRequest request = Constrained(2, 1.0f, Compile(SourceKind::kRegex, "[a-z ]{90}"));
    ASSERT_TRUE(engine->Submit(request, bound.stream()).ok());
    ASSERT_TRUE(bound.ReadToEnd().status.ok()) << bound.end->status;
    EXPECT_EQ(bound.tokens(), ExpectedConstrained(request));
    free.stream()->Cancel();
    free.ReadToEnd();
    engine.reset();
    ASSERT_GE(masked.size(), bound.tokens().size());
    // Of most: where the machine is busy, a mask may be late for a step.
    std::vector<uint64_t> apart;
    for (size_t i = 1; i < masked.size(); ++i) apart.push_back(masked[i] - masked[i - 1]);
    std::ranges::sort(apart);
    EXPECT_EQ(apart[apart.size() / 2], late ? 1u : 2u);
  }
}

TEST(LateMasksTest, PayWhereTheySaveMoreThanForcedTokensCost) {
  const auto after = [](double forcing, absl::Duration step, absl::Duration masks) {
    LateMasks late;
    for (int i = 0; i < 1000; ++i) {
      late.TokenDecided(static_cast<int>(i * forcing) != static_cast<int>((i + 1) * forcing));
      late.StepTook(step, masks);
    }
    return late.Pay();
  };
  // A large model on a small device, and a small one on a large device.
  EXPECT_FALSE(after(0.1, absl::Milliseconds(200), absl::Microseconds(60)));
  EXPECT_TRUE(after(0, absl::Milliseconds(200), absl::Microseconds(60)));
  EXPECT_TRUE(after(0.1, absl::Milliseconds(2), absl::Microseconds(400)));
  EXPECT_FALSE(after(1, absl::Milliseconds(2), absl::Microseconds(400)));
}

}  // namespace
}  // namespace tandem::gateway
