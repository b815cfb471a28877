#include "services/gateway/scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "services/gateway/scheduler/scheduler_for_test.h"

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;

SchedulerOptions Options() { return SmallSchedulerOptions(); }

// Runs the step and appends token 7 for every sampled output.
void Finish(Scheduler& scheduler, const ScheduledStep& step) {
  scheduler.StepDone();
  for (const ScheduledOutput& output : step.outputs) {
    if (output.sample) scheduler.Append(output.sequence, 7, {});
  }
}

TEST(SchedulerTest, AnIdleSchedulerHasNoStep) {
  auto scheduler = MakeScheduler(Options());
  EXPECT_EQ(scheduler->Schedule(), nullptr);
  EXPECT_TRUE(scheduler->empty());
}

TEST(SchedulerTest, CutsAPromptIntoChunksAndSamplesAfterTheLast) {
  auto scheduler = MakeScheduler(Options());
  ASSERT_TRUE(scheduler->Add(PromptSpec(1, 35)).ok());
  for (const uint32_t rows : {16u, 16u, 3u}) {
    const ScheduledStep* step = scheduler->Schedule();
    ASSERT_NE(step, nullptr);
    EXPECT_EQ(step->batch.header.num_rows, rows);
    EXPECT_EQ(step->outputs.size(), rows == 3 ? 1u : 0u);
    Finish(*scheduler, *step);
  }
  const ScheduledStep* step = scheduler->Schedule();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->batch.rows[0].token, 7u);
  EXPECT_EQ(step->batch.rows[0].position, 35u);
}

TEST(SchedulerTest, TheLowestPriorityNumberGoesFirstWhosever) {
  SchedulerOptions options = Options();
  options.max_sequences = 1;
  auto scheduler = MakeScheduler(options);
  const auto add = [&](uint64_t id, const char* tenant, int32_t priority) {
    SequenceSpec spec = PromptSpec(id, 3);
    spec.tenant.name = tenant;
    spec.priority = priority;
    spec.max_answer = 1;
    ASSERT_TRUE(scheduler->Add(std::move(spec)).ok());
  };
  add(1, "a", 5);
  add(2, "a", 0);
  add(3, "b", 5);
  add(4, "a", -3);
  add(5, "b", -2);
  std::vector<uint64_t> order;
  while (const ScheduledStep* step = scheduler->Schedule()) {
    ASSERT_EQ(step->rows.size(), 1u);
    order.push_back(step->rows[0].sequence);
    scheduler->StepDone();
    scheduler->Remove(order.back());
  }
  ASSERT_EQ(order.size(), 5u);
  EXPECT_EQ(std::vector<uint64_t>(order.begin(), order.begin() + 3),
            (std::vector<uint64_t>{4, 5, 2}));
}

TEST(SchedulerTest, AHigherPriorityNumberGivesItsPlaceAndBlocks) {
  SchedulerOptions options = Options();
  options.max_sequences = 2;
  options.limits.num_blocks[kGlobalGroup] = 30;
  auto scheduler = MakeScheduler(options);
  SequenceSpec background = PromptSpec(1, 8), other = PromptSpec(2, 8), urgent = PromptSpec(3, 90);
  background.priority = 10;
  other.priority = 9;
  ASSERT_TRUE(scheduler->Add(background).ok());
  ASSERT_TRUE(scheduler->Add(other).ok());
  Finish(*scheduler, *scheduler->Schedule());
  Finish(*scheduler, *scheduler->Schedule());
  EXPECT_EQ(scheduler->load().running, 2u);
  ASSERT_TRUE(scheduler->Add(urgent).ok());
  const ScheduledStep* step = scheduler->Schedule();
  std::set<uint64_t> ids;
  for (const ScheduledRows& rows : step->rows) ids.insert(rows.sequence);
  EXPECT_EQ(ids, (std::set<uint64_t>{2, 3})) << "the highest number gave way, of the same tenant";
  EXPECT_EQ(scheduler->counters().preemptions, 1u);
  Finish(*scheduler, *step);
  // One that does not fit is not passed by another of a higher number.
  SequenceSpec next = PromptSpec(4, 100), small = PromptSpec(5, 2);
  next.priority = 1;
  small.priority = 2;
  ASSERT_TRUE(scheduler->Add(next).ok());
  ASSERT_TRUE(scheduler->Add(small).ok());
  for (int i = 0; i < 8; ++i) {
    step = scheduler->Schedule();
    for (const ScheduledRows& rows : step->rows) EXPECT_NE(rows.sequence, 5u) << i;
    Finish(*scheduler, *step);
  }
}

// Several steps at once without speculative tokens: further rows of a prompt, and other sequences.
TEST(SchedulerTest, AStepThatIsNotFedHasWhatWaitsForNoToken) {
  const StepRules rules = {.feeds = false};
  auto scheduler = MakeScheduler(Options());
  ASSERT_TRUE(scheduler->Add(PromptSpec(1, 35)).ok());
  const ScheduledStep* first = scheduler->Schedule(rules);
  const ScheduledStep* second = scheduler->Schedule(rules);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(second->rows[0].first_position, 16u);
  EXPECT_EQ(second->batch.header.after_step, 0u);
  EXPECT_FALSE(first->another_follows);
  Finish(*scheduler, *first);
  const ScheduledStep* third = scheduler->Schedule(rules);
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(third->batch.header.num_rows, 3u);
  Finish(*scheduler, *second);
  EXPECT_EQ(scheduler->Schedule(rules), nullptr) << "its token is not decided";
  ASSERT_TRUE(scheduler->Add(PromptSpec(2, 5)).ok());
  const ScheduledStep* other = scheduler->Schedule(rules);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(other->rows[0].sequence, 2u);
  EXPECT_EQ(other->rows.size(), 1u);
  for (const RowEntry& row : other->batch.rows) EXPECT_EQ(row.feed, 0u);
}

TEST(SchedulerTest, SequencesThatDecodeAreHalved) {
  const StepRules halves = {.decoding = [](uint32_t decoding) { return (decoding + 1) / 2; },
                            .feeds = false};
  auto scheduler = MakeScheduler(Options());
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(scheduler->Add(PromptSpec(id, 3)).ok());
  Finish(*scheduler, *scheduler->Schedule());
  const auto sequences = [](const ScheduledStep& step) {
    std::set<uint64_t> ids;
    for (const ScheduledRows& rows : step.rows) ids.insert(rows.sequence);
    return ids;
  };
  const ScheduledStep* first = scheduler->Schedule(halves);
  const ScheduledStep* second = scheduler->Schedule(halves);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(sequences(*first).size(), 2u);
  EXPECT_EQ(sequences(*second).size(), 1u);
  std::set<uint64_t> all = sequences(*first);
  all.merge(sequences(*second));
  EXPECT_EQ(all, (std::set<uint64_t>{1, 2, 3}));
  // Those whose tokens are decided go on, whatever the others do.
  const std::set<uint64_t> decided = sequences(*first);
  Finish(*scheduler, *first);
  const ScheduledStep* third = scheduler->Schedule(halves);
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(sequences(*third), decided);
}

TEST(SchedulerTest, SequencesThatBeginApartDecodeTogether) {
  const StepRules rules = {.decoding = [](uint32_t decoding) { return decoding; }, .feeds = false};
  auto scheduler = MakeScheduler(Options());
  ASSERT_TRUE(scheduler->Add(PromptSpec(1, 3)).ok());
  const ScheduledStep* first = scheduler->Schedule(rules);
  ASSERT_TRUE(scheduler->Add(PromptSpec(2, 3)).ok());
  const ScheduledStep* second = scheduler->Schedule(rules);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  Finish(*scheduler, *first);
  const ScheduledStep* third = scheduler->Schedule(rules);
  ASSERT_NE(third, nullptr) << "the other's prompt is computed meanwhile";
  Finish(*scheduler, *second);
  EXPECT_EQ(scheduler->Schedule(rules), nullptr) << "it waits for the step that decodes";
  Finish(*scheduler, *third);
  const ScheduledStep* both = scheduler->Schedule(rules);
  ASSERT_NE(both, nullptr);
  EXPECT_EQ(both->rows.size(), 2u);
  EXPECT_EQ(scheduler->Schedule(rules), nullptr);
}

TEST(SchedulerTest, FourStepsUnderWayShareSequencesThatDecode) {
  const StepRules rules = {
      .decoding = [](uint32_t) { return 1u; }, .prompt_steps = 2, .feeds = false};
  SchedulerOptions options = Options();
  options.max_sequences = options.limits.max_sequences = 6;
  auto scheduler = MakeScheduler(options);
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(scheduler->Add(PromptSpec(id, 3)).ok());
  Finish(*scheduler, *scheduler->Schedule());
  ASSERT_TRUE(scheduler->Add(PromptSpec(5, 3)).ok());
  std::vector<const ScheduledStep*> steps;
  for (int i = 0; i < 4; ++i) steps.push_back(scheduler->Schedule(rules));
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_NE(steps[i], nullptr) << i;
    EXPECT_EQ(steps[i]->rows.front().sequence, i + 1);
    // The prompt is computed beside the first of them.
    EXPECT_EQ(steps[i]->rows.size(), i == 0 ? 2u : 1u);
  }
  ASSERT_TRUE(scheduler->Add(PromptSpec(6, 3)).ok());
  Finish(*scheduler, *steps[0]);
  // Three are under way: prompts wait until one is left.
  const ScheduledStep* next = scheduler->Schedule(rules);
  ASSERT_NE(next, nullptr);
  for (const ScheduledRows& rows : next->rows) EXPECT_NE(rows.sequence, 6u);
  Finish(*scheduler, *steps[1]);
  Finish(*scheduler, *steps[2]);
  Finish(*scheduler, *steps[3]);
  const ScheduledStep* with_prompt = scheduler->Schedule(rules);
  ASSERT_NE(with_prompt, nullptr);
  EXPECT_EQ(with_prompt->rows.back().sequence, 6u);
}

TEST(SchedulerTest, AStepThatFailsTakesLaterRowsOfItsPromptWithIt) {
  SchedulerOptions options = Options();
  options.chunk_rows = 8;
  auto scheduler = MakeScheduler(options);
  ASSERT_TRUE(scheduler->Add(PromptSpec(1, 24)).ok());
  const StepRules rules = {.feeds = false};
  const ScheduledStep* first = scheduler->Schedule(rules);
  const ScheduledStep* second = scheduler->Schedule(rules);
  const ScheduledStep* third = scheduler->Schedule(rules);
  ASSERT_TRUE(first != nullptr && second != nullptr && third != nullptr);
  EXPECT_EQ(third->rows[0].first_position, 16u);
  scheduler->StepFailed();
  for (const ScheduledStep* step : {second, third}) {
    EXPECT_FALSE(scheduler->IsValid(step->batch.header.step_id, 1, step->rows[0].first_position));
    scheduler->StepDone();
  }
  const ScheduledStep* again = scheduler->Schedule(rules);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->rows[0].first_position, 0u);
}

TEST(SchedulerTest, ALimitCutsPromptRowsBesideDecodeRowsAlone) {
  SchedulerOptions options = Options();
  options.chunk_rows = 32;
  auto scheduler = MakeScheduler(options);
  uint32_t asked = 0;
  const auto limit = [&asked](uint32_t decode_rows) {
    asked = decode_rows;
    return 5u;
  };
  ASSERT_TRUE(scheduler->Add(PromptSpec(1, 20)).ok());
  const ScheduledStep* step = scheduler->Schedule({.prompt_rows = limit});
  EXPECT_EQ(step->batch.header.num_rows, 20u) << "no decode row waits for it";
  Finish(*scheduler, *step);
  ASSERT_TRUE(scheduler->Add(PromptSpec(2, 40)).ok());
  step = scheduler->Schedule({.prompt_rows = limit});
  EXPECT_EQ(asked, 1u);
  EXPECT_EQ(step->batch.header.num_rows, 1u + 5u);
  Finish(*scheduler, *step);
  step = scheduler->Schedule({.prompt_rows = [](uint32_t) { return 0u; }});
  EXPECT_EQ(step->batch.header.num_rows, 1u + 2u) << "prompts always go on";
  Finish(*scheduler, *step);
  step = scheduler->Schedule();
  EXPECT_EQ(step->batch.header.num_rows, 32u);
}

TEST(SchedulerTest, APooledPromptIsPooledInEveryStepAndHasNoOutput) {
  auto scheduler = MakeScheduler(Options());
  SequenceSpec spec = PromptSpec(1, 35);
  spec.pooled = true;
  ASSERT_TRUE(scheduler->Add(spec).ok());
  ASSERT_TRUE(scheduler->Add(PromptSpec(2, 3)).ok());
  uint32_t position = 0;
  for (const uint32_t rows : {16u, 16u, 3u}) {
    const ScheduledStep* step = scheduler->Schedule();
    ASSERT_NE(step, nullptr);
    ASSERT_EQ(step->batch.pooled.size(), 1u);
    const ScheduledRows& sum = step->rows[step->batch.pooled[0]];
    EXPECT_EQ(sum.sequence, 1u);
    EXPECT_EQ(sum.first_position, position);
    EXPECT_EQ(sum.num_rows, rows);
    position += rows;
    for (const ScheduledOutput& output : step->outputs) EXPECT_EQ(output.sequence, 2u);
    Finish(*scheduler, *step);
  }
  scheduler->Remove(2);
  EXPECT_EQ(scheduler->Schedule(), nullptr);  // nothing follows its prompt
}

TEST(SchedulerTest, AStepSaysWhetherAnotherFollowsWhileItIsUnderWay) {
  struct Case {
    const char* name;
    SequenceSpec spec;
    std::vector<bool> follows;  // by step
  };
  std::vector<Case> cases = {
      {"chunks, then a token that is waited for", PromptSpec(1, 35), {1, 1, 0}},
      {"tokens that are guessed, to the last", PromptSpec(1, 3), {1, 1, 0}},
      {"an answer of one token", PromptSpec(1, 3), {0}},
      {"chunks of a pooled prompt", PromptSpec(1, 20), {1, 0}}};
  cases[1].spec.guess = cases[2].spec.guess = GuessRule();
  cases[1].spec.max_answer = 3;
  cases[2].spec.max_answer = 1;
  cases[3].spec.pooled = true;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    auto scheduler = MakeScheduler(Options());
    ASSERT_TRUE(scheduler->Add(c.spec).ok());
    const ScheduledStep* step = scheduler->Schedule();
    for (const bool follows : c.follows) {
      ASSERT_NE(step, nullptr);
      EXPECT_EQ(step->another_follows, follows);
      const ScheduledStep* next = scheduler->Schedule();
      EXPECT_EQ(next != nullptr, follows);
      scheduler->StepDone();
      for (const ScheduledOutput& output : step->outputs) {
        if (next != nullptr) scheduler->Append(output.sequence, 7, {}, 7);
      }
      step = next;
    }
  }
}

TEST(SchedulerTest, DecodeRowsComeBeforePromptChunks) {
  auto scheduler = MakeScheduler(Options());
  ASSERT_TRUE(scheduler->Add(PromptSpec(1, 1)).ok());
  Finish(*scheduler, *scheduler->Schedule());
  ASSERT_TRUE(scheduler->Add(PromptSpec(2, 60)).ok());
  ASSERT_TRUE(scheduler->Add(PromptSpec(3, 60)).ok());
  const ScheduledStep* step = scheduler->Schedule();
  ASSERT_EQ(step->rows.size(), 3u);
  EXPECT_EQ(step->rows[0].sequence, 1u);
  EXPECT_EQ(step->rows[1].num_rows, 16u);
  EXPECT_EQ(step->rows[2].num_rows, 15u);  // what the budget of 32 leaves
}

TEST(SchedulerTest, TargetsArePromptTokensWhenTheirLogProbabilitiesAreWanted) {
  auto scheduler = MakeScheduler(Options());
  SequenceSpec spec = PromptSpec(1, 5);
  spec.prompt_logprobs = true;
  ASSERT_TRUE(scheduler->Add(std::move(spec)).ok());
  const ScheduledStep* step = scheduler->Schedule();
  ASSERT_EQ(step->outputs.size(), 5u);
  for (uint32_t o = 0; o < 4; ++o) {
    EXPECT_EQ(step->batch.outputs[o].row, o);
    EXPECT_EQ(step->batch.outputs[o].target, o + 2);
    EXPECT_FALSE(step->outputs[o].sample);
  }
  EXPECT_TRUE(step->outputs[4].sample);
  EXPECT_EQ(step->batch.outputs[4].target, kNoToken);
}

TEST(SchedulerTest, PromptOutputsNeverExceedTheStepsOutputs) {
  SchedulerOptions options = Options();
  options.limits.max_outputs = 3;
  auto scheduler = MakeScheduler(options);
  SequenceSpec spec = PromptSpec(1, 10);
  spec.prompt_logprobs = true;
  ASSERT_TRUE(scheduler->Add(std::move(spec)).ok());
  std::vector<uint32_t> positions;
  for (int i = 0; i < 4; ++i) {
    const ScheduledStep* step = scheduler->Schedule();
    ASSERT_LE(step->outputs.size(), 3u);
    for (const auto& output : step->outputs) positions.push_back(output.position);
    Finish(*scheduler, *step);
  }
  EXPECT_THAT(positions, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST(SchedulerTest, EverySequenceThatNeedsLogitsGetsItsTurn) {
  auto scheduler = MakeScheduler(Options());
  for (uint64_t id = 1; id <= 6; ++id) {
    SequenceSpec spec = PromptSpec(id, 1);
    spec.needs.logits = id % 2 == 0;
    ASSERT_TRUE(scheduler->Add(std::move(spec)).ok());
  }
  std::map<uint64_t, int> served;
  for (int i = 0; i < 30; ++i) {
    const ScheduledStep* step = scheduler->Schedule();
    ASSERT_NE(step, nullptr);
    if (step->batch.header.want_logits) {
      ASSERT_LE(step->outputs.size(), 2u);
    }
    scheduler->StepDone();
    for (const auto& output : step->outputs) {
      ++served[output.sequence];
      scheduler->Append(output.sequence, 7, {.logits = output.sequence % 2 == 0});
    }
  }
  for (uint64_t id = 1; id <= 6; ++id) EXPECT_GE(served[id], 6) << "sequence " << id;
}

TEST(SchedulerTest, RefusesWhatCanNeverFit) {
  SchedulerOptions options = Options();
  auto scheduler = MakeScheduler(options);
  EXPECT_EQ(scheduler->max_sequence_len(), 128u);
  EXPECT_TRUE(scheduler->Add(PromptSpec(1, 127)).ok());
  const absl::Status status = scheduler->Add(PromptSpec(2, 128));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("context_length_exceeded"));
  EXPECT_FALSE(scheduler->Add(PromptSpec(3, 0)).ok());
  EXPECT_FALSE(scheduler->Add(PromptSpec(1, 3)).ok());

  options.limits.num_blocks[kGlobalGroup] = 5;
  EXPECT_EQ(MakeScheduler(options)->max_sequence_len(), 21u);
  options.limits.num_blocks[kWindowGroup] = 2;
  EXPECT_EQ(MakeScheduler(options)->max_sequence_len(), 9u);
}

TEST(SchedulerTest, PreemptsTheYoungestWhenNoBlockIsFree) {
  SchedulerOptions options = Options();
  options.limits.num_blocks[kGlobalGroup] = 6;  // 24 positions for three sequences of 8
  auto scheduler = MakeScheduler(options);
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(scheduler->Add(PromptSpec(id, 8)).ok());
  Finish(*scheduler, *scheduler->Schedule());
  EXPECT_EQ(scheduler->load().running, 3u);
  const ScheduledStep* step = scheduler->Schedule();  // 1 and 2 need a third block
  ASSERT_EQ(step->rows.size(), 2u);
  EXPECT_EQ(step->rows[0].sequence, 1u);
  EXPECT_EQ(step->rows[1].sequence, 2u);
  EXPECT_EQ(scheduler->counters().preemptions, 1u);
  EXPECT_EQ(scheduler->load().waiting, 1u);
  Finish(*scheduler, *step);
  scheduler->Remove(1);
  step = scheduler->Schedule();
  ASSERT_EQ(step->rows.size(), 2u);
  EXPECT_EQ(step->rows[1].sequence, 3u);
  EXPECT_EQ(step->rows[1].first_position, 0u);
  EXPECT_EQ(step->rows[1].num_rows, 9u);  // the prompt and the token decided before
}

TEST(SchedulerTest, RemovalFreesRowsAndBlocksAtOnce) {
  auto scheduler = MakeScheduler(Options());
  ASSERT_TRUE(scheduler->Add(PromptSpec(1, 20)).ok());
  ASSERT_TRUE(scheduler->Add(PromptSpec(2, 20)).ok());
  Finish(*scheduler, *scheduler->Schedule());
  scheduler->Remove(1);
  scheduler->Remove(99);
  const ScheduledStep* step = scheduler->Schedule();
  ASSERT_EQ(step->rows.size(), 1u);
  EXPECT_EQ(step->rows[0].sequence, 2u);
  scheduler->StepDone();
  scheduler->Remove(2);
  EXPECT_EQ(scheduler->load().blocks_used[kGlobalGroup], 0u);
  EXPECT_EQ(scheduler->load().blocks_used[kWindowGroup], 0u);
}

TEST(SchedulerTest, RecomputesEverythingInOrderAfterALoss) {
  auto scheduler = MakeScheduler(Options());
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(scheduler->Add(PromptSpec(id, 4)).ok());
  Finish(*scheduler, *scheduler->Schedule());
  ASSERT_NE(scheduler->Schedule(), nullptr);  // this one fails
  const auto misfits = scheduler->RecomputeAll(Options().limits);
  ASSERT_TRUE(misfits.ok());
  EXPECT_TRUE(misfits->empty());
  EXPECT_EQ(scheduler->load().waiting, 3u);
  EXPECT_EQ(scheduler->load().blocks_used[kGlobalGroup], 0u);
  const ScheduledStep* step = scheduler->Schedule();
  ASSERT_EQ(step->rows.size(), 3u);
  for (uint64_t id = 1; id <= 3; ++id) {
    EXPECT_EQ(step->rows[id - 1].sequence, id);
    EXPECT_EQ(step->rows[id - 1].num_rows, 5u);
  }
}

TEST(SchedulerTest, NamesSequencesThatRecoveredWorkersCannotHold) {
  auto scheduler = MakeScheduler(Options());
  ASSERT_TRUE(scheduler->Add(PromptSpec(1, 100)).ok());
  ASSERT_TRUE(scheduler->Add(PromptSpec(2, 10)).ok());
  StepLimits smaller = Options().limits;
  smaller.num_blocks[kGlobalGroup] = 20;
  const auto misfits = scheduler->RecomputeAll(smaller);
  ASSERT_TRUE(misfits.ok());
  EXPECT_THAT(*misfits, testing::ElementsAre(1u));
  EXPECT_EQ(scheduler->Schedule()->rows[0].sequence, 2u);
}

TEST(SchedulerTest, RefusesLimitsThatCannotWork) {
  for (auto fault : std::vector<std::function<void(SchedulerOptions&)>>{
           [](auto& o) { o.limits.max_rows = 0; }, [](auto& o) { o.limits.max_logit_outputs = 0; },
           [](auto& o) { o.limits.max_table_len = 63; }, [](auto& o) { o.chunk_rows = 0; },
           [](auto& o) { o.limits.num_blocks[kWindowGroup] = 0; },
           [](auto& o) { o.max_sequences = 0; }}) {
    SchedulerOptions options = Options();
    fault(options);
    EXPECT_EQ(Scheduler::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tandem::gateway
