// Answers of the demo model on every placement, with the prefix cache and without.
#include <algorithm>
#include <map>

#include "services/common/testing/paths.h"
#include "services/gateway/scheduler/scheduler.h"
#include "tests/evaluation/evaluation_fixture.h"
#include "tests/evaluation/evaluation_set.h"

namespace tandem::evaluation {
namespace {

using Tokens = std::vector<uint32_t>;

// If the two best logits are nearer than this, other rows in the step may swap them.
constexpr float kUndecided = 0.05f;

struct Answer {
  Tokens tokens;
  std::vector<float> margins;  // of each token, over the next best
  uint32_t first_position = 0;
};

// Requests through the scheduler and the workers, without a gateway.  One at a time has a runner:
// they do not know of each other's blocks.
class Server {
 public:
  Server(testing::PlanRunner& runner, const StepLimits& limits, bool prefix_cache)
      : runner_(runner),
        scheduler_(gateway::Scheduler::Create({.limits = limits,
                                               .max_sequences = 3,
                                               .max_rows = limits.max_rows,
                                               .chunk_rows = 48,
                                               .prefix_cache = prefix_cache})
                       .value()) {}

  // Greedy answers of `num_tokens` each, all requests at once.
  std::vector<Answer> Serve(const std::vector<Tokens>& prompts, uint32_t num_tokens) {
    std::map<uint64_t, Answer> answers;
    for (size_t i = 0; i < prompts.size(); ++i) {
      const absl::Status added = scheduler_->Add({.id = i,
                                                  .prompt = prompts[i],
                                                  .needs = {.num_candidates = 2},
                                                  .max_answer = num_tokens});
      EXPECT_TRUE(added.ok()) << added;
    }
    while (const gateway::ScheduledStep* step = scheduler_->Schedule()) {
      for (const gateway::ScheduledRows& rows : step->rows) {
        if (const auto [it, first] = answers.try_emplace(rows.sequence); first) {
          it->second.first_position = rows.first_position;
        }
      }
      const absl::Status ran = runner_.RunStep(step->batch);
      EXPECT_TRUE(ran.ok()) << ran;
      if (!ran.ok()) return {};
      scheduler_->StepDone();
      for (uint32_t o = 0; o < step->outputs.size(); ++o) {
        TakeToken(step->outputs[o].sequence, runner_.Output(o), num_tokens,
                  answers.at(step->outputs[o].sequence));
      }
    }
    std::vector<Answer> all;
    for (auto& [id, answer] : answers) all.push_back(std::move(answer));
    return all;
  }

  const gateway::SchedulerCounters& counters() const { return scheduler_->counters(); }
  gateway::SchedulerLoad load() const { return scheduler_->load(); }

 private:
  void TakeToken(uint64_t id, const OutputResult& result, uint32_t num_tokens, Answer& answer) {
    ASSERT_GE(result.num_candidates, 2u);
    answer.tokens.push_back(result.candidates[0].token);
    answer.margins.push_back(result.candidates[0].logit - result.candidates[1].logit);
    if (answer.tokens.size() == num_tokens) return scheduler_->Remove(id);
    scheduler_->Append(id, answer.tokens.back(), {.num_candidates = 2});
  }

  testing::PlanRunner& runner_;
  std::unique_ptr<gateway::Scheduler> scheduler_;
};

class PrefixTest : public EvaluationTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    const std::string path = SourcePath("models/demo/demo.Q8_0.gguf");
    Place(GetParam(), path, {.max_rows = 64, .context_len = 512, .num_blocks = {200, 120}});
    if (IsSkipped() || HasFatalFailure()) return;
    const testing::Checkpoint& checkpoint = OpenCheckpoint(path);
    ASSERT_OK_AND_ASSIGN(const auto tokenizer, gateway::Tokenizer::Create(checkpoint.vocabulary));
    ASSERT_OK_AND_ASSIGN(std::vector<Item> items,
                         ReadEvaluationSet(TestDataPath("eval_set.jsonl")));
    items.resize(42);
    ASSERT_OK_AND_ASSIGN(questions_,
                         RenderPrompts(*tokenizer, checkpoint.weights->config(), items));
    for (size_t i = 14; i < questions_.size(); ++i) {
      story_.insert(story_.end(), questions_[i].begin(), questions_[i].end());
    }
  }

  // `num_alike` tokens of the story, which all prompts have, and a question.
  Tokens Prompt(uint32_t num_alike, size_t question) const {
    Tokens prompt(story_.begin(), story_.begin() + num_alike);
    prompt.insert(prompt.end(), questions_[question].begin() + 1, questions_[question].end());
    return prompt;
  }

  // Compares up to the first token that is not decided.
  static void ExpectAlike(const Answer& answer, const Answer& expected, size_t& num_compared) {
    for (size_t i = 0; i < expected.tokens.size(); ++i) {
      if (expected.margins[i] < kUndecided) return;
      ASSERT_EQ(answer.tokens[i], expected.tokens[i])
          << "token " << i << ", ahead by " << expected.margins[i] << " and by "
          << answer.margins[i];
      ++num_compared;
    }
  }

  std::vector<Tokens> questions_;
  Tokens story_;
};

TEST_P(PrefixTest, AnswersAreTheSameAroundTheEdgesOfBlocksAndOfTheWindow) {
  const StepLimits& limits = runner_->limits();
  const uint32_t block = limits.block_tokens, window = limits.sliding_window;
  ASSERT_GT(story_.size(), 2 * window + 1);
  constexpr uint32_t kTokens = 6;
  std::vector<Tokens> prompts;
  for (const uint32_t alike :
       {block, block + 1, window - 1, window, window + block + 1, 2 * window + 1}) {
    for (const size_t question : {alike % 7, 7 + alike % 7}) {
      prompts.push_back(Prompt(alike, question));
    }
  }
  std::vector<Answer> expected = Server(*runner_, limits, false).Serve(prompts, kTokens);
  // The next turn of the last conversation: its answer but for the last token was computed.
  Tokens next = prompts.back();
  next.insert(next.end(), expected.back().tokens.begin(), expected.back().tokens.end());
  const size_t computed = next.size() - 1;
  next.insert(next.end(), questions_[3].begin() + 1, questions_[3].end());
  prompts.push_back(next);
  expected.push_back(Server(*runner_, limits, false).Serve({next}, kTokens).at(0));

  Server with(*runner_, limits, true);
  size_t num_compared = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    SCOPED_TRACE(i);
    const Answer answer = with.Serve({prompts[i]}, kTokens).at(0);
    ExpectAlike(answer, expected[i], num_compared);
    size_t common = i + 1 == prompts.size() ? computed : 0;
    for (size_t before = 0; before < i && common < computed; ++before) {
      const auto ends = std::ranges::mismatch(prompts[before], prompts[i]);
      common = std::max<size_t>(common, ends.in2 - prompts[i].begin());
    }
    EXPECT_EQ(answer.first_position, common / block * block);
  }
  EXPECT_GT(num_compared, 10 * kTokens) << "of 13 answers";
}

TEST_P(PrefixTest, AnswersAreTheSameWhereBlocksAreScarce) {
  StepLimits limits = runner_->limits();
  limits.num_blocks[kGlobalGroup] = 16;  // two prompts, but not their answers
  limits.num_blocks[kWindowGroup] = 16;
  constexpr uint32_t kTokens = 24;
  std::vector<Tokens> prompts;
  for (const uint32_t alike : {100u, 60u, 95u, 61u, 100u}) {
    prompts.push_back(Prompt(alike, prompts.size()));
  }
  Server without(*runner_, limits, false);
  const std::vector<Answer> expected = without.Serve(prompts, kTokens);
  Server with(*runner_, limits, true);
  size_t num_compared = 0;
  // In the second round many prefixes are found, and others were evicted.
  for (int round = 0; round < 2; ++round) {
    SCOPED_TRACE(round);
    const std::vector<Answer> answers = with.Serve(prompts, kTokens);
    for (size_t i = 0; i < prompts.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectAlike(answers.at(i), expected.at(i), num_compared);
    }
  }
  EXPECT_GT(num_compared, 5 * kTokens) << "of 10 answers";
  EXPECT_GT(with.counters().prefix_tokens_found, 0u);
  EXPECT_GT(with.counters().preemptions, 0u);
  EXPECT_GT(with.load().blocks_evicted[kGlobalGroup], 0u);
}

INSTANTIATE_TEST_SUITE_P(Placements, PrefixTest, ::testing::ValuesIn(PlacementNames()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tandem::evaluation
