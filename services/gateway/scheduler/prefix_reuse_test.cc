// How much of a request's prefix the scheduler reuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "services/gateway/scheduler/scheduler.h"

namespace tandem::gateway {
namespace {

using Tokens = std::vector<uint32_t>;

SchedulerOptions ReuseOptions() {
  SchedulerOptions options;
  options.limits = {.max_rows = 64,
                    .max_sequences = 8,
                    .max_outputs = 64,
                    .max_logit_outputs = 2,
                    .max_table_len = 1024,
                    .vocab_size = 1000,
                    .context_len = 256,
                    .block_tokens = 4,
                    .sliding_window = 10,
                    .num_blocks = {100, 60}};
  options.max_sequences = 8;
  options.max_rows = 64;
  options.chunk_rows = 16;
  return options;
}

Tokens Text(uint32_t n, uint32_t first) {
  Tokens tokens(n);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

class PrefixReuseTest : public ::testing::Test {
 protected:
  explicit PrefixReuseTest(SchedulerOptions options = ReuseOptions())
      : scheduler_(Scheduler::Create(options).value()) {}

  // Rows of a request that are computed up to its first token.
  uint32_t Add(SequenceSpec spec) {
    const uint64_t id = spec.id = ++last_id_;
    EXPECT_TRUE(scheduler_->Add(std::move(spec)).ok());
    uint32_t rows = 0;
    while (true) {
      const ScheduledStep* step = scheduler_->Schedule();
      if (step == nullptr) return 0;
      for (const ScheduledRows& scheduled : step->rows) {
        if (scheduled.sequence == id) rows += scheduled.num_rows;
      }
      bool first_token = false;
      scheduler_->StepDone();
      for (const ScheduledOutput& output : step->outputs) {
        if (!output.sample) continue;
        first_token |= output.sequence == id;
        scheduler_->Append(output.sequence, kAnswer, {});
      }
      if (first_token) return rows;
    }
  }
  // The same for one that ends with its first token.
  uint32_t Serve(Tokens prompt, bool prompt_logprobs = false, bool use_prefix_cache = true) {
    const uint32_t rows = Add({.prompt = std::move(prompt),
                               .prompt_logprobs = prompt_logprobs,
                               .use_prefix_cache = use_prefix_cache});
    scheduler_->Remove(last_id_);
    return rows;
  }

  static constexpr uint32_t kAnswer = 7;
  std::unique_ptr<Scheduler> scheduler_;
  uint64_t last_id_ = 0;
};

TEST_F(PrefixReuseTest, TheLastTokenOfAPromptIsAlwaysComputed) {
  for (const uint32_t n : {15u, 16u, 17u}) {
    const Tokens prompt = Text(n, 100 * n);
    EXPECT_EQ(Serve(prompt), n);
    EXPECT_EQ(Serve(prompt), n - (n - 1) / 4 * 4);
  }
}

TEST_F(PrefixReuseTest, ANextTurnGoesOnWhereTheLastOneEnded) {
  Tokens conversation = Text(101, 100);
  EXPECT_EQ(Serve(conversation), 101u);
  for (int turn = 0; turn < 3; ++turn) {
    const auto before = static_cast<uint32_t>(conversation.size());
    const Tokens question = Text(21, 300 + 50 * turn);
    conversation.insert(conversation.end(), question.begin(), question.end());
    EXPECT_EQ(Serve(conversation), conversation.size() - before / 4 * 4);
  }
}

TEST_F(PrefixReuseTest, QuestionsShareTheInstructionsBeforeThem) {
  const Tokens instructions = Text(40, 100);
  for (uint32_t question = 0; question < 4; ++question) {
    Tokens prompt = instructions;
    const Tokens own = Text(33 + question, 200 + 50 * question);
    prompt.insert(prompt.end(), own.begin(), own.end());
    EXPECT_EQ(Serve(prompt), question == 0 ? prompt.size() : own.size());
  }
  EXPECT_EQ(scheduler_->counters().prefix_tokens_found, 3 * 40u);
  EXPECT_EQ(scheduler_->counters().prefix_tokens_looked_up, 4 * 40u + 33 + 34 + 35 + 36);
}

TEST_F(PrefixReuseTest, RequestsThatRunTogetherShareToo) {
  EXPECT_EQ(Add({.prompt = Text(30, 100)}), 30u);
  EXPECT_EQ(Add({.prompt = Text(30, 100)}), 2u);
  // 7 blocks are shared; the first has grown by a token or two.
  EXPECT_EQ(scheduler_->load().blocks_used[kGlobalGroup], 7 + 2 * 1u);
}

TEST_F(PrefixReuseTest, WhoOptsOutNeitherFindsNorIsFound) {
  const Tokens prompt = Text(30, 100);
  EXPECT_EQ(Serve(prompt, false, /*use_prefix_cache=*/false), 30u);
  EXPECT_EQ(scheduler_->load().blocks_cached[kGlobalGroup], 0u);
  EXPECT_EQ(Serve(prompt), 30u);
  EXPECT_EQ(Serve(prompt, false, /*use_prefix_cache=*/false), 30u);
  EXPECT_EQ(scheduler_->counters().prefix_tokens_looked_up, 30u);
}

TEST_F(PrefixReuseTest, PromptLogProbabilitiesWantEveryRow) {
  const Tokens prompt = Text(30, 100);
  EXPECT_EQ(Serve(prompt, /*prompt_logprobs=*/true), 30u);
  EXPECT_EQ(Serve(prompt, /*prompt_logprobs=*/true), 30u);
  EXPECT_EQ(Serve(prompt), 2u) << "others find what it computed";
}

TEST_F(PrefixReuseTest, WhatIsPooledIsComputedWholeAndNotKept) {
  Tokens prompt = Text(30, 100);
  EXPECT_EQ(Serve(prompt), 30u);
  const uint32_t num_kept = scheduler_->pools().tree->size();
  prompt.back() = 0;
  prompt.insert(prompt.end(), 2, 0);
  ASSERT_TRUE(scheduler_->Add({.id = 50, .prompt = prompt, .pooled = true}).ok());
  for (const uint32_t first : {0u, 16u}) {
    const ScheduledStep* step = scheduler_->Schedule();
    ASSERT_EQ(step->rows.size(), 1u);
    EXPECT_EQ(step->rows[0].first_position, first);
    scheduler_->StepDone();
  }
  EXPECT_EQ(scheduler_->counters().prefix_tokens_looked_up, 30u);
  EXPECT_EQ(scheduler_->pools().tree->size(), num_kept);
}

TEST_F(PrefixReuseTest, AStepThatWasRefusedIsNotFound) {
  const Tokens prompt = Text(30, 100);
  SequenceSpec spec{.id = 99, .prompt = prompt};
  ASSERT_TRUE(scheduler_->Add(spec).ok());
  ASSERT_NE(scheduler_->Schedule(), nullptr);
  scheduler_->StepDone();
  ASSERT_NE(scheduler_->Schedule(), nullptr);
  scheduler_->StepRefused();
  scheduler_->Remove(99);
  EXPECT_EQ(Serve(prompt), 30u - 16u);
}

TEST_F(PrefixReuseTest, AStepThatFailedIsComputedAnewAndThenFound) {
  const Tokens prompt = Text(30, 100);
  ASSERT_TRUE(scheduler_->Add({.id = 99, .prompt = prompt}).ok());
  ASSERT_NE(scheduler_->Schedule(), nullptr);
  scheduler_->StepFailed();
  EXPECT_EQ(scheduler_->pools().tree->size(), 0u);
  ASSERT_NE(scheduler_->Schedule(), nullptr);
  scheduler_->StepDone();
  EXPECT_EQ(scheduler_->pools().tree->size(), 4u);
}

TEST_F(PrefixReuseTest, ALostWorkersBlocksAreForgotten) {
  const Tokens prompt = Text(30, 100);
  Serve(prompt);
  ASSERT_TRUE(scheduler_->RecomputeAll(ReuseOptions().limits).ok());
  EXPECT_EQ(scheduler_->load().blocks_cached[kGlobalGroup], 0u);
  EXPECT_EQ(Serve(prompt), 30u);
  scheduler_->ForgetPrefixes();
  EXPECT_EQ(scheduler_->load().blocks_cached[kGlobalGroup], 0u);
  EXPECT_EQ(Serve(prompt), 30u);
}

TEST_F(PrefixReuseTest, CachedBlocksAreFreeForWhoNeedsThem) {
  for (uint32_t i = 0; i < 10; ++i) EXPECT_EQ(Serve(Text(81, 100 * i)), 81u);
  const SchedulerLoad load = scheduler_->load();
  EXPECT_EQ(load.blocks_used[kGlobalGroup], 0u);
  EXPECT_GT(load.blocks_cached[kGlobalGroup], 90u);
  EXPECT_EQ(load.blocks_evicted[kGlobalGroup], 200 - load.blocks_cached[kGlobalGroup]);
  EXPECT_EQ(scheduler_->counters().preemptions, 0u);
  EXPECT_EQ(Serve(Text(81, 900)), 1u) << "the last one is there";
}

class HeldBackTest : public PrefixReuseTest {
 protected:
  void AddAll(const std::vector<Tokens>& prompts) {
    for (const Tokens& prompt : prompts) {
      ASSERT_TRUE(scheduler_->Add({.id = ++last_id_, .prompt = prompt}).ok());
    }
  }
  // Rows of sequences 1, 2, ... in the next step.
  std::vector<uint32_t> Step() {
    std::vector<uint32_t> num_rows(last_id_);
    const ScheduledStep* step = scheduler_->Schedule();
    if (step == nullptr) return {};
    for (const ScheduledRows& rows : step->rows) num_rows[rows.sequence - 1] = rows.num_rows;
    scheduler_->StepDone();
    for (const ScheduledOutput& output : step->outputs) {
      if (scheduler_->IsValid(step->batch.header.step_id, output.sequence, output.position)) {
        scheduler_->Append(output.sequence, kAnswer, {});
      }
    }
    return num_rows;
  }
  using Rows = std::vector<uint32_t>;
};

TEST_F(HeldBackTest, OnePromptOfSeveralAnswersIsComputedOnce) {
  AddAll({Text(30, 100), Text(30, 100), Text(30, 100)});
  EXPECT_EQ(Step(), (Rows{16, 0, 0}));
  EXPECT_EQ(scheduler_->load().waiting, 2u);
  EXPECT_EQ(Step(), (Rows{14, 0, 0}));
  EXPECT_EQ(Step(), (Rows{1, 2, 2}));
  EXPECT_EQ(Step(), (Rows{1, 1, 1}));
  EXPECT_EQ(scheduler_->counters().prefix_tokens_found, 2 * 28u);
}

TEST_F(HeldBackTest, OnlyAsLongAsWhatIsAlikeIsBeingComputed) {
  Tokens other = Text(40, 100);
  std::iota(other.begin() + 18, other.end(), 500);
  Tokens short_beginning = Text(20, 700);
  std::copy_n(other.begin(), 3, short_beginning.begin());
  AddAll({Text(40, 100), other, short_beginning});
  EXPECT_EQ(Step(), (Rows{16, 0, 16})) << "three tokens are no block";
  EXPECT_EQ(Step(), (Rows{16, 16, 4})) << "18 tokens are four blocks";
}

TEST_F(HeldBackTest, OthersAreAdmittedPastThem) {
  AddAll({Text(30, 100), Text(30, 100), Text(10, 500)});
  EXPECT_EQ(Step(), (Rows{16, 0, 10}));
  // When the one that computes it goes, the next one does.
  scheduler_->Remove(1);
  EXPECT_EQ(Step(), (Rows{0, 14, 1}));
}

TEST_F(HeldBackTest, NobodyWaitsForWhatIsNotPublished) {
  ASSERT_TRUE(scheduler_->Add({.id = 1, .prompt = Text(30, 100), .use_prefix_cache = false}).ok());
  last_id_ = 1;
  AddAll({Text(30, 100)});
  EXPECT_EQ(Step(), (Rows{16, 16}));
  // What the running ones have computed is not to be trusted any more.
  scheduler_->ForgetPrefixes();
  AddAll({Text(30, 100)});
  EXPECT_EQ(Step(), (Rows{14, 14, 16}));
}

// The one with the higher number may have no rows for long.
TEST_F(HeldBackTest, NobodyWaitsForAHigherPriorityNumber) {
  const auto add = [this](int32_t priority) {
    SequenceSpec spec{.id = ++last_id_, .prompt = Text(60, 100)};
    spec.priority = priority;
    ASSERT_TRUE(scheduler_->Add(std::move(spec)).ok());
  };
  add(1);
  EXPECT_EQ(Step(), (Rows{16}));
  add(0);
  add(1);
  EXPECT_EQ(Step(), (Rows{16, 16, 0})) << "the third has the first one's priority";
}

class FewPlacesTest : public HeldBackTest {
 protected:
  FewPlacesTest() {
    SchedulerOptions options = ReuseOptions();
    options.max_sequences = 2;
    scheduler_ = Scheduler::Create(options).value();
  }
};

TEST_F(FewPlacesTest, ThePlaceOfWhoIsHeldBackIsKept) {
  AddAll({Text(30, 100), Text(30, 100), Text(10, 500)});
  EXPECT_EQ(Step(), (Rows{16, 0, 0}));
  EXPECT_EQ(Step(), (Rows{14, 0, 0}));
  EXPECT_EQ(Step(), (Rows{1, 2, 0}));
}

class SmallPoolsTest : public PrefixReuseTest {
 protected:
  SmallPoolsTest() : PrefixReuseTest(Options()) {}
  static SchedulerOptions Options() {
    SchedulerOptions options = ReuseOptions();
    options.limits.num_blocks[kGlobalGroup] = 14;
    return options;
  }
};

TEST_F(SmallPoolsTest, BlocksOfWhoIsHeldBackAreKept) {
  for (const auto& [id, prompt] :
       {std::pair{1, Text(24, 100)}, {2, Text(24, 100)}, {3, Text(8, 500)}}) {
    ASSERT_TRUE(scheduler_->Add({.id = static_cast<uint64_t>(id), .prompt = prompt}).ok());
  }
  // 6 blocks and 6 more, of 14.
  ASSERT_NE(scheduler_->Schedule(), nullptr);
  EXPECT_EQ(scheduler_->load().running, 2u);
}

TEST_F(SmallPoolsTest, WhoWaitsIsLookedUpOnceForEachChangeOfWhatIsCached) {
  ASSERT_TRUE(scheduler_->Add({.id = 50, .prompt = Text(24, 100)}).ok());
  ASSERT_TRUE(scheduler_->Add({.id = 60, .prompt = Text(40, 200)}).ok());
  const auto run = [this](int num_steps) {
    for (int i = 0; i < num_steps; ++i) {
      const ScheduledStep* step = scheduler_->Schedule();
      ASSERT_EQ(step->rows.size(), 1u);
      scheduler_->StepDone();
      if (!step->outputs.empty()) scheduler_->Append(50, kAnswer, {});
    }
  };
  run(2);  // 24 tokens, 16 a step, make 6 blocks
  const uint64_t before = scheduler_->counters().prefix_lookups;
  run(9);  // 24 and 28 positions are there before the first and the fifth of these, 32 before the
           // ninth
  EXPECT_EQ(scheduler_->load().waiting, 1u);
  EXPECT_EQ(scheduler_->counters().prefix_lookups - before, 3u);
}

TEST_F(SmallPoolsTest, APreemptedSequenceFindsWhatIsLeftOfIt) {
  ASSERT_TRUE(scheduler_->Add({.id = 50, .prompt = Text(24, 100)}).ok());
  ASSERT_TRUE(scheduler_->Add({.id = 60, .prompt = Text(24, 200)}).ok());
  // 12 blocks, and 2 more for the first tokens; the older one then needs a block of the younger's.
  uint32_t first_position = 0;
  while (scheduler_->counters().preemptions == 0 || scheduler_->load().waiting == 1) {
    const ScheduledStep* step = scheduler_->Schedule();
    ASSERT_NE(step, nullptr);
    for (const ScheduledRows& rows : step->rows) {
      if (rows.sequence == 60) first_position = rows.first_position;
    }
    scheduler_->StepDone();
    bool ended = false;
    for (const ScheduledOutput& output : step->outputs) {
      if (!output.sample) continue;
      if (output.sequence == 50 && output.position == 28) ended = true;
      scheduler_->Append(output.sequence, kAnswer, {});
    }
    if (ended) scheduler_->Remove(50);
  }
  // Of its 7 blocks, the last one's room was needed.
  EXPECT_EQ(first_position, 24u);
}

}  // namespace
}  // namespace tandem::gateway
