// Drafted rows: what a step looks like with them, and what becomes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "services/gateway/scheduler/scheduler_for_test.h"

namespace tandem::gateway {
namespace {

using Tokens = std::vector<uint32_t>;

class SchedulerDraftTest : public ::testing::Test {
 protected:
  explicit SchedulerDraftTest(const SchedulerOptions& options = SmallSchedulerOptions())
      : scheduler_(Scheduler::Create(options).value()) {}

  // A sequence whose prompt is computed and whose first token, 7, is decided.
  void Start(uint64_t id, uint32_t prompt_len, SequenceSpec spec = {}) {
    spec.id = id;
    spec.prompt.resize(prompt_len);
    std::iota(spec.prompt.begin(), spec.prompt.end(), static_cast<uint32_t>(1000 * id));
    ASSERT_TRUE(scheduler_->Add(spec).ok());
    while (true) {
      const ScheduledStep* step = scheduler_->Schedule();
      ASSERT_NE(step, nullptr);
      scheduler_->StepDone();
      bool decided = false;
      for (const ScheduledOutput& output : step->outputs) {
        scheduler_->Append(output.sequence, 7, {});
        decided |= output.sequence == id;
      }
      if (decided) return;
    }
  }

  // Ends `step`, whose outputs decide `tokens` as far as they are valid; returns how many were.
  uint32_t Finish(const ScheduledStep& step, const Tokens& tokens) {
    scheduler_->StepDone();
    uint32_t num_decided = 0;
    for (const ScheduledOutput& output : step.outputs) {
      if (!scheduler_->IsValid(step.batch.header.step_id, output.sequence, output.position)) {
        continue;
      }
      scheduler_->Append(output.sequence, tokens.at(num_decided++), {});
    }
    return num_decided;
  }

  Tokens TokensOf(const ScheduledStep& step) {
    Tokens tokens;
    for (const RowEntry& row : step.batch.rows) tokens.push_back(row.token);
    return tokens;
  }
  size_t NumPlaces() {
    DraftPlaces found;
    scheduler_->FindDraftPlaces(found);
    return found.places.size();
  }

  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(SchedulerDraftTest, GuessesAreRowsWithOutputsBehindTheDecodeRow) {
  Start(1, 5, {.guess = GuessRule::For({.temperature = 1.0f, .top_k = 8})});
  scheduler_->Draft(1, Tokens({8, 9}), {.num_candidates = 3});
  const ScheduledStep* step = scheduler_->Schedule();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(TokensOf(*step), Tokens({7, 8, 9}));
  EXPECT_EQ(step->batch.rows[2].position, 7u);
  ASSERT_EQ(step->outputs.size(), 3u);
  EXPECT_EQ(step->rows[0].num_drafted, 2u);
  for (uint32_t o = 0; o < 3; ++o) {
    EXPECT_EQ(step->batch.outputs[o].row, o);
    EXPECT_EQ(step->batch.outputs[o].target, kNoToken);
    EXPECT_TRUE(step->outputs[o].sample);
    EXPECT_EQ(step->outputs[o].guessed, o > 0);
  }
  EXPECT_EQ(step->batch.header.num_candidates, 3u);
  EXPECT_EQ(step->batch.header.num_draws, 0u) << "nothing is fed from it";
  EXPECT_FALSE(step->another_follows);
  EXPECT_EQ(scheduler_->Schedule(), nullptr) << "its outcome is waited for";
}

TEST_F(SchedulerDraftTest, AllAccepted) {
  Start(1, 5);
  scheduler_->Draft(1, Tokens({8, 9}), {});
  EXPECT_EQ(Finish(*scheduler_->Schedule(), {8, 9, 10}), 3u);
  const ScheduledStep* step = scheduler_->Schedule();
  EXPECT_EQ(TokensOf(*step), Tokens({10}));
  EXPECT_EQ(step->batch.rows[0].position, 8u);
}

TEST_F(SchedulerDraftTest, ARejectedGuessAndThoseBehindItAreVoidAndOverwritten) {
  Start(1, 5);
  scheduler_->Draft(1, Tokens({8, 9, 10, 11}), {});
  EXPECT_EQ(Finish(*scheduler_->Schedule(), {8, 5}), 2u) << "8 was right, 9 was not";
  const ScheduledStep* step = scheduler_->Schedule();
  EXPECT_EQ(TokensOf(*step), Tokens({5}));
  EXPECT_EQ(step->batch.rows[0].position, 7u) << "where 9 had been";
  // The chain reached block 2 (positions 8 to 11), and the row does not.
  EXPECT_EQ(step->batch.header.table_len, 4u);
}

TEST_F(SchedulerDraftTest, TheFirstGuessMayBeWrong) {
  Start(1, 5);
  scheduler_->Draft(1, Tokens({8, 9}), {});
  EXPECT_EQ(Finish(*scheduler_->Schedule(), {4}), 1u);
  EXPECT_EQ(scheduler_->Schedule()->batch.rows[0].position, 6u);
}

TEST_F(SchedulerDraftTest, GuessesAreForOneStep) {
  Start(1, 5);
  scheduler_->Draft(1, Tokens({8, 9}), {});
  EXPECT_EQ(Finish(*scheduler_->Schedule(), {8, 9, 10}), 3u);
  const ScheduledStep* step = scheduler_->Schedule();
  EXPECT_EQ(step->batch.header.num_rows, 1u);
}

TEST_F(SchedulerDraftTest, NoRowIsBeyondTheLastTokenThatMayBeDecided) {
  Start(1, 5, {.max_answer = 4});
  DraftPlaces found;
  scheduler_->FindDraftPlaces(found);
  ASSERT_EQ(found.places.size(), 1u);
  EXPECT_EQ(found.places[0].max_guesses, 2u) << "they and the last output decide 3";
  scheduler_->Draft(1, Tokens({8, 9, 10, 11}), {});
  const ScheduledStep* step = scheduler_->Schedule();
  EXPECT_EQ(step->batch.header.num_rows, 3u);
  EXPECT_EQ(Finish(*step, {8, 9, 10}), 3u);
}

TEST_F(SchedulerDraftTest, OnlySequencesThatDecodeArePlaces) {
  Start(1, 5);
  EXPECT_EQ(NumPlaces(), 1u);
  SequenceSpec prompt{.id = 2, .prompt = Tokens(40, 3)};
  ASSERT_TRUE(scheduler_->Add(prompt).ok());
  const ScheduledStep* step = scheduler_->Schedule();
  DraftPlaces found;
  scheduler_->FindDraftPlaces(found);
  ASSERT_EQ(found.places.size(), 1u);
  EXPECT_EQ(found.places[0].sequence, 1u);
  EXPECT_TRUE(found.places[0].under_way);
  EXPECT_FALSE(found.can_queue) << "it has no guess rule";
  Finish(*step, {8, 8});
}

TEST_F(SchedulerDraftTest, PooledSequencesTakeNone) {
  ASSERT_TRUE(scheduler_->Add({.id = 1, .prompt = Tokens(20, 3), .pooled = true}).ok());
  ASSERT_NE(scheduler_->Schedule(), nullptr);
  scheduler_->StepDone();
  EXPECT_EQ(NumPlaces(), 0u);
}

TEST_F(SchedulerDraftTest, GuessesForAConstrainedSequenceHaveMasks) {
  Start(1, 5, {.constrained = true});
  Start(2, 5, {.constrained = true});
  DraftPlaces found;
  scheduler_->FindDraftPlaces(found);
  ASSERT_EQ(found.places.size(), 2u);
  EXPECT_FALSE(found.can_queue) << "no step is queued for constrained sequences";
  // As many masks as sequences: one for each, and six for guesses.
  scheduler_->Draft(1, Tokens({8, 9, 10, 11}), {});
  scheduler_->Draft(2, Tokens({8, 9, 10, 11}), {});
  const ScheduledStep* step = scheduler_->Schedule();
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->batch.header.num_masks, 8u);
  ASSERT_EQ(step->outputs.size(), 8u);
  for (uint32_t o = 0; o < 8; ++o) EXPECT_EQ(step->batch.outputs[o].mask, o);
  EXPECT_EQ(NumPlaces(), 0u) << "their tokens are being decided";
  scheduler_->StepDone();
  // Of the first, one guess is right, and a token is forced behind the next.
  const auto valid = [&](uint32_t o) {
    return scheduler_->IsValid(step->batch.header.step_id, step->outputs[o].sequence,
                               step->outputs[o].position);
  };
  const uint64_t first = step->outputs[0].sequence;
  scheduler_->Append(first, 8, {});
  ASSERT_TRUE(valid(1));
  scheduler_->Append(first, 99, {});
  EXPECT_FALSE(valid(2));
  scheduler_->AppendForced(first, Tokens({50, 51}));
  const uint64_t second = first == 1 ? 2 : 1;
  scheduler_->Append(second, 77, {});
  step = scheduler_->Schedule();
  ASSERT_NE(step, nullptr);
  ASSERT_EQ(step->rows.size(), 2u);
  EXPECT_THAT(TokensOf(*step), ::testing::UnorderedElementsAre(99u, 50u, 51u, 77u));
  EXPECT_EQ(step->outputs.size(), 2u);
}

TEST_F(SchedulerDraftTest, ASequenceThatAwaitsItsDraftHasNoFedRow) {
  Start(1, 5, {.guess = GuessRule::For({.temperature = 0.0f})});
  const ScheduledStep* step = scheduler_->Schedule();
  scheduler_->AwaitDraft(1, true);
  EXPECT_EQ(scheduler_->Schedule(), nullptr);
  Finish(*step, {8});
  step = scheduler_->Schedule();
  EXPECT_FALSE(step->another_follows);
  scheduler_->AwaitDraft(1, false);
  EXPECT_NE(scheduler_->Schedule(), nullptr);
}

TEST_F(SchedulerDraftTest, AFailedStepsGuessesAreDropped) {
  Start(1, 5);
  scheduler_->Draft(1, Tokens({8, 9}), {});
  ASSERT_NE(scheduler_->Schedule(), nullptr);
  scheduler_->StepFailed();
  // The last known token, behind the block that is cached.
  const ScheduledStep* step = scheduler_->Schedule();
  EXPECT_EQ(TokensOf(*step), Tokens({1004, 7}));
  EXPECT_EQ(step->batch.rows[0].position, 4u);
}

TEST_F(SchedulerDraftTest, RecoveryDropsThem) {
  Start(1, 5);
  scheduler_->Draft(1, Tokens({8, 9}), {});
  ASSERT_NE(scheduler_->Schedule(), nullptr);
  ASSERT_TRUE(scheduler_->RecomputeAll(SmallSchedulerOptions().limits).ok());
  const ScheduledStep* step = scheduler_->Schedule();
  EXPECT_EQ(step->batch.header.num_rows, 6u) << "prompt and the decided token";
  EXPECT_EQ(step->outputs.size(), 1u);
}

TEST_F(SchedulerDraftTest, AcceptedRowsAloneArePublished) {
  Start(1, 5);
  // Positions 5 to 11: blocks 1 (4 to 7) and 2 (8 to 11) if all were accepted.
  scheduler_->Draft(1, Tokens({8, 9, 10, 11, 12, 13}), {});
  EXPECT_EQ(Finish(*scheduler_->Schedule(), {8, 9, 10, 5}), 4u);
  Finish(*scheduler_->Schedule(), {6});
  scheduler_->Remove(1);
  EXPECT_EQ(scheduler_->load().blocks_cached[kGlobalGroup], 2u);
  SequenceSpec same{.id = 2, .prompt = {1000, 1001, 1002, 1003, 1004, 7, 8, 9, 10, 11, 12, 13, 1}};
  ASSERT_TRUE(scheduler_->Add(same).ok());
  EXPECT_EQ(scheduler_->Schedule()->rows[0].first_position, 8u);
}

class TightTest : public SchedulerDraftTest {
 protected:
  static SchedulerOptions Tight() {
    SchedulerOptions options = SmallSchedulerOptions();
    options.limits.num_blocks[kGlobalGroup] = options.limits.num_blocks[kWindowGroup] = 6;
    options.limits.max_outputs = 4;
    return options;
  }
  TightTest() : SchedulerDraftTest(Tight()) {}
};

TEST_F(TightTest, GuessesTakeNothingFromOtherRows) {
  Start(1, 7);
  Start(2, 7);
  // 3 blocks each with the next row: there is no room for positions beyond 11.
  scheduler_->Draft(1, Tokens({8, 9, 10, 11, 12, 13, 14, 15}), {});
  const ScheduledStep* step = scheduler_->Schedule();
  EXPECT_EQ(step->rows.size(), 2u);
  EXPECT_EQ(step->outputs.size(), 4u) << "as many as the step may have";
  EXPECT_EQ(scheduler_->counters().preemptions, 0u);
}

TEST_F(SchedulerDraftTest, OutputsWithLogitsAreFew) {
  Start(1, 5);
  scheduler_->Draft(1, Tokens({8, 9, 10, 11}), {.logits = true});
  const ScheduledStep* step = scheduler_->Schedule();
  EXPECT_EQ(step->outputs.size(), 2u);
  EXPECT_EQ(step->batch.header.want_logits, 1u);
}

}  // namespace
}  // namespace tandem::gateway
