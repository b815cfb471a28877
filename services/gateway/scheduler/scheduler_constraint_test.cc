// Sequences whose tokens a constraint chooses among.
#include <gtest/gtest.h>

#include <deque>

#include "services/gateway/scheduler/scheduler_for_test.h"

namespace tandem::gateway {
namespace {

// Else the same token would be chosen twice.
TEST(SchedulerConstraintTest, APreemptedConstrainedSequenceWaitsForItsToken) {
  SchedulerOptions options = SmallSchedulerOptions();
  options.limits.num_blocks[kGlobalGroup] = 4;  // 16 positions
  auto scheduler = MakeScheduler(options);
  SequenceSpec free = PromptSpec(1, 8), bound = PromptSpec(2, 8);
  free.guess = GuessRule::For({.temperature = 0.0f});
  bound.constrained = true;
  ASSERT_TRUE(scheduler->Add(free).ok());
  ASSERT_TRUE(scheduler->Add(bound).ok());
  const ScheduledStep* step = scheduler->Schedule();
  ASSERT_EQ(step->outputs.size(), 2u);
  EXPECT_EQ(step->batch.outputs[0].mask, kNoMask);
  EXPECT_EQ(step->batch.outputs[1].mask, 0u);
  EXPECT_EQ(step->batch.header.num_masks, 1u);
  EXPECT_TRUE(step->another_follows);
  step = scheduler->Schedule();  // 1 needs a third block
  ASSERT_EQ(step->rows.size(), 1u);
  EXPECT_EQ(step->rows[0].sequence, 1u);
  EXPECT_EQ(scheduler->counters().preemptions, 1u);
  scheduler->StepDone();
  scheduler->Remove(1);
  EXPECT_EQ(scheduler->Schedule(), nullptr) << "2 fits, and its token is being decided";
  scheduler->StepDone();
  EXPECT_EQ(scheduler->Schedule(), nullptr);
  scheduler->Append(2, 7, {});
  scheduler->AppendForced(2, std::vector<uint32_t>{8, 9});
  step = scheduler->Schedule();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->batch.header.num_rows, 11u);
  ASSERT_EQ(step->outputs.size(), 1u);
  EXPECT_EQ(step->outputs[0].position, 10u);
  EXPECT_EQ(step->batch.outputs[0].mask, 0u);
}

// Two steps of one row each would read the weights twice.
TEST(SchedulerConstraintTest, ConstrainedSequencesDecodeInOneStep) {
  auto scheduler = MakeScheduler(SmallSchedulerOptions());
  SequenceSpec early = PromptSpec(1, 8), late = PromptSpec(2, 8), free = PromptSpec(3, 8);
  early.constrained = late.constrained = true;
  free.guess = GuessRule::For({.temperature = 0.0f});
  ASSERT_TRUE(scheduler->Add(early).ok());
  ASSERT_NE(scheduler->Schedule(), nullptr);
  ASSERT_TRUE(scheduler->Add(late).ok());
  ASSERT_NE(scheduler->Schedule(), nullptr) << "prompts do not wait";
  scheduler->StepDone();
  scheduler->Append(1, 7, {});
  const ScheduledStep* step = scheduler->Schedule();
  ASSERT_NE(step, nullptr) << "the end of a prompt is no reason to wait";
  ASSERT_EQ(step->rows.size(), 1u);
  EXPECT_EQ(step->rows[0].sequence, 1u);
  EXPECT_FALSE(step->another_follows);
  scheduler->StepDone();
  scheduler->Append(2, 7, {});
  EXPECT_EQ(scheduler->Schedule(), nullptr) << "2 waits for 1";
  ASSERT_TRUE(scheduler->Add(free).ok());
  step = scheduler->Schedule();
  ASSERT_NE(step, nullptr);
  ASSERT_EQ(step->rows.size(), 1u);
  EXPECT_EQ(step->rows[0].sequence, 3u);
  EXPECT_TRUE(step->another_follows);
  scheduler->StepDone();
  scheduler->Append(1, 7, {});
  step = scheduler->Schedule();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->batch.header.num_rows, 3u);
  EXPECT_EQ(step->batch.header.num_masks, 2u);
}

// A mask may be made just before the next step is planned: in that step it could not be taken.
TEST(SchedulerConstraintTest, ASequenceThatIsToBeTakenHasNoMoreRows) {
  auto scheduler = MakeScheduler(SmallSchedulerOptions());
  SequenceSpec bound = PromptSpec(1, 8), free = PromptSpec(2, 8);
  bound.constrained = true;
  free.guess = GuessRule::For({.temperature = 0.0f});
  ASSERT_TRUE(scheduler->Add(bound).ok());
  ASSERT_TRUE(scheduler->Add(free).ok());
  ASSERT_NE(scheduler->Schedule(), nullptr);
  scheduler->StepDone();
  scheduler->AwaitTake(1, true);
  EXPECT_FALSE(scheduler->CanTake(1)) << "its token is being decided";
  scheduler->Append(1, 7, {});
  scheduler->Append(2, 7, {});
  const ScheduledStep* step = scheduler->Schedule();
  ASSERT_NE(step, nullptr);
  ASSERT_EQ(step->rows.size(), 1u);
  EXPECT_EQ(step->rows[0].sequence, 2u);
  DraftPlaces places;
  scheduler->FindDraftPlaces(places);
  EXPECT_EQ(places.num_rows, 1u);
  EXPECT_TRUE(scheduler->CanTake(1));
  // It is not taken after all.
  scheduler->AwaitTake(1, false);
  step = scheduler->Schedule();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->rows.size(), 2u);
}

TEST(SchedulerConstraintTest, ConstrainedSequencesGoOnWhilePromptsKeepComing) {
  auto scheduler = MakeScheduler(SmallSchedulerOptions());
  const auto constrained = [](uint64_t id) {
    SequenceSpec spec = PromptSpec(id, 8);
    spec.constrained = true;
    return spec;
  };
  ASSERT_TRUE(scheduler->Add(constrained(1)).ok());
  std::deque<const ScheduledStep*> under_way = {scheduler->Schedule()};
  uint32_t num_tokens = 0;
  for (uint64_t id = 2; id < 22; ++id) {
    ASSERT_TRUE(scheduler->Add(constrained(id)).ok());
    const ScheduledStep* const step = scheduler->Schedule();
    ASSERT_NE(step, nullptr);
    under_way.push_back(step);
    scheduler->StepDone();
    for (const ScheduledOutput& output : under_way.front()->outputs) {
      if (output.sequence != 1) {
        scheduler->Remove(output.sequence);
        continue;
      }
      ++num_tokens;
      scheduler->Append(1, 7, {});
    }
    under_way.pop_front();
  }
  EXPECT_GE(num_tokens, 10u) << "in every second step";
}

TEST(SchedulerConstraintTest, AConstrainedSequenceWaitsForItsTokenAfterALoss) {
  auto scheduler = MakeScheduler(SmallSchedulerOptions());
  SequenceSpec bound = PromptSpec(1, 8);
  bound.constrained = true;
  ASSERT_TRUE(scheduler->Add(bound).ok());
  ASSERT_NE(scheduler->Schedule(), nullptr);
  // Lost with its result: the step is computed again.
  ASSERT_TRUE(scheduler->RecomputeAll(SmallSchedulerOptions().limits).ok());
  ASSERT_NE(scheduler->Schedule(), nullptr);
  scheduler->StepDone();
  // Lost while the token is decided: the rows are computed again with it.
  ASSERT_TRUE(scheduler->RecomputeAll(SmallSchedulerOptions().limits).ok());
  EXPECT_EQ(scheduler->Schedule(), nullptr);
  scheduler->Append(1, 7, {});
  const ScheduledStep* step = scheduler->Schedule();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->batch.header.num_rows, 9u);
}

SequenceSpec FedConstrained(uint64_t id) {
  SequenceSpec spec = PromptSpec(id, 8);
  spec.constrained = true;
  spec.guess = GuessRule::For({.temperature = 0.0f});
  return spec;
}
const StepRules kLate{.late_mask = [](uint64_t) { return true; }};

TEST(SchedulerConstraintTest, ASequenceIsFedWhereItsMaskMayBeLate) {
  auto scheduler = MakeScheduler(SmallSchedulerOptions());
  ASSERT_TRUE(scheduler->Add(FedConstrained(1)).ok());
  const ScheduledStep* step = scheduler->Schedule(kLate);
  EXPECT_TRUE(step->another_follows);
  EXPECT_FALSE(step->outputs[0].fed);
  for (uint32_t position = 8; position < 12; ++position) {
    step = scheduler->Schedule(kLate);
    ASSERT_NE(step, nullptr);
    ASSERT_EQ(step->outputs.size(), 1u);
    EXPECT_TRUE(step->outputs[0].fed);
    EXPECT_EQ(step->batch.outputs[0].mask, 0u);
    EXPECT_EQ(step->batch.rows[0].feed, 1u);
    const uint64_t id = step->batch.header.step_id;
    scheduler->StepDone();
    EXPECT_TRUE(scheduler->IsValid(id, 1, position));
    EXPECT_FALSE(scheduler->Decides(id, 1, position)) << "the token before is not decided";
    scheduler->Append(1, 7, {}, 7);
    EXPECT_TRUE(scheduler->Decides(id, 1, position));
  }
  EXPECT_EQ(scheduler->counters().rejected_tokens, 0u);
}

TEST(SchedulerConstraintTest, AFedRowBeforeForcedTokensDecidesNothing) {
  auto scheduler = MakeScheduler(SmallSchedulerOptions());
  ASSERT_TRUE(scheduler->Add(FedConstrained(1)).ok());
  ASSERT_NE(scheduler->Schedule(kLate), nullptr);
  const uint64_t fed = scheduler->Schedule(kLate)->batch.header.step_id;
  scheduler->StepDone();
  scheduler->Append(1, 7, {}, 7);
  scheduler->AppendForced(1, std::vector<uint32_t>{8, 9});
  EXPECT_TRUE(scheduler->IsValid(fed, 1, 8));
  EXPECT_FALSE(scheduler->Decides(fed, 1, 8));
  const ScheduledStep* step = scheduler->Schedule(kLate);
  ASSERT_NE(step, nullptr);
  ASSERT_EQ(step->batch.header.num_rows, 2u) << "the token's own row is under way";
  EXPECT_EQ(step->batch.rows[0].token, 8u);
  EXPECT_EQ(step->batch.rows[1].token, 9u);
  scheduler->StepDone();
  EXPECT_TRUE(scheduler->Decides(step->batch.header.step_id, 1, 10));
}

TEST(SchedulerConstraintTest, ATokenThatComesLateIsComputedAgain) {
  auto scheduler = MakeScheduler(SmallSchedulerOptions());
  ASSERT_TRUE(scheduler->Add(FedConstrained(1)).ok());
  ASSERT_TRUE(scheduler->Add(FedConstrained(2)).ok());
  ASSERT_NE(scheduler->Schedule(kLate), nullptr);
  const uint64_t fed = scheduler->Schedule(kLate)->batch.header.step_id;
  scheduler->StepDone();
  scheduler->TakeBack(1);
  scheduler->Append(2, 7, {}, 7);
  EXPECT_FALSE(scheduler->IsValid(fed, 1, 8));
  const ScheduledStep* step = scheduler->Schedule(kLate);
  ASSERT_NE(step, nullptr);
  ASSERT_EQ(step->rows.size(), 1u);
  EXPECT_EQ(step->rows[0].sequence, 2u);
  scheduler->StepDone();
  scheduler->Append(2, 7, {}, 7);
  scheduler->Append(1, 7, {});
  step = scheduler->Schedule(kLate);
  ASSERT_NE(step, nullptr);
  ASSERT_EQ(step->rows.size(), 2u);
  EXPECT_TRUE(step->outputs[0].fed != step->outputs[1].fed);
}

}  // namespace
}  // namespace tandem::gateway
