// Steps queued while another runs, whose rows are fed with its speculative tokens.
#include "services/common/reference/ops.h"
#include "tests/conformance/worker_suite.h"

namespace tandem::conformance {
namespace {

// Two sequences, one greedy and one drawn; a third whose prompt goes in by chunks beside them.
class Decoder {
 public:
  explicit Decoder(PlanRunner& runner) : runner_(runner), steps_(runner.limits(), 4) {
    for (uint32_t& sequence : sequences_) sequence = steps_.AddSequence();
  }

  // The next step: rows of the decoding sequences take `tokens`, or where there are none are fed.
  StepBatch Next(const std::vector<uint32_t>& tokens, uint32_t step) {
    steps_.Begin();
    steps_.set_num_candidates(40);
    steps_.AddRows(sequences_[2], MakeTokens(runner_.config(), 1 + step % 3, step));
    for (uint32_t s = 0; s < 2; ++s) {
      uint32_t row = 0;
      if (step == 0) {
        const std::vector<uint32_t> prompt = MakeTokens(runner_.config(), 5 + s, 20 + s);
        row = steps_.AddRows(sequences_[s], prompt) + 4 + s;
      } else {
        row = steps_.AddRows(sequences_[s], {tokens.empty() ? 0 : tokens[s]});
        if (tokens.empty()) steps_.FeedRow(row, s);
      }
      steps_.AddOutput(row);
    }
    const float uniform = static_cast<float>(step * 37 % 100) / 100;
    steps_.DrawOutput({.temperature = 1.5f, .top_k = 40, .top_p = 0.9f, .uniform = uniform});
    return steps_.batch();
  }

 private:
  PlanRunner& runner_;
  StepBuilder steps_;
  uint32_t sequences_[3] = {};
};

// The outputs of both sequences, and the speculative tokens.
struct Record {
  std::vector<uint32_t> guesses;
  std::vector<float> log_sum_exps;

  void Add(const PlanRunner& runner, uint32_t lane) {
    for (uint32_t o = 0; o < 2; ++o) {
      guesses.push_back(runner.Guess(o, lane));
      log_sum_exps.push_back(runner.Output(o, lane).log_sum_exp);
    }
  }
};

TEST_F(WorkerSuite, StepsThatAreQueuedAndFedGiveTheSameBitsAsOneByOne) {
  if (!worker().description().feeds_steps) GTEST_SKIP() << "it does not feed steps";
  constexpr uint32_t kSteps = 12;
  const ModelConfig config = testing::MakeConfig({});
  const auto weights = testing::RandomWeightSet(config);
  Record alone, queued;
  {
    ASSERT_OK_AND_ASSIGN(const auto runner, RunWhole(weights, {.num_lanes = 2}));
    Decoder decoder(*runner);
    std::vector<uint32_t> tokens = {0, 0};
    for (uint32_t step = 0; step < kSteps; ++step) {
      runner->FillGuards(step % 2);
      ASSERT_OK(runner->RunStep(decoder.Next(tokens, step), step % 2));
      EXPECT_TRUE(runner->GuardsIntact(step % 2));
      alone.Add(*runner, step % 2);
      tokens.assign(alone.guesses.end() - 2, alone.guesses.end());
      EXPECT_EQ(tokens[0], runner->Output(0, step % 2).candidates[0].token);
    }
  }
  ASSERT_OK_AND_ASSIGN(const auto runner, RunWhole(weights, {.num_lanes = 2}));
  Decoder decoder(*runner);
  for (uint32_t step = 0; step < kSteps; ++step) {
    ASSERT_OK(runner->SubmitStep(decoder.Next({}, step), step % 2));
    if (step == 0) continue;
    ASSERT_OK(runner->WaitForStep());
    queued.Add(*runner, (step - 1) % 2);
  }
  ASSERT_OK(runner->WaitForStep());
  queued.Add(*runner, (kSteps - 1) % 2);
  EXPECT_EQ(queued.guesses, alone.guesses);
  EXPECT_EQ(queued.log_sum_exps, alone.log_sum_exps);
  // A random model's drawn tokens differ from its best ones.
  uint32_t num_distinct = 0;
  for (size_t i = 2; i < alone.guesses.size(); ++i) {
    num_distinct += alone.guesses[i] != alone.guesses[i - 2];
  }
  EXPECT_GT(num_distinct, kSteps / 2);
}

// A masked sequence, fed from step to step, behind an output without a mask if `rows` is above 1.
// Masks are written before their step is submitted, or (`follow`) when the step before it has ended.
void RunMasked(PlanRunner& runner, uint32_t rows, bool logits, bool follow,
               std::vector<OutputResult>& results) {
  const uint32_t vocab = runner.config().vocab_size, output = rows > 1 ? 1 : 0;
  StepBuilder steps(runner.limits(), 4);
  const uint32_t sequence = steps.AddSequence(), other = steps.AddSequence();
  const auto write = [&](uint32_t step, uint32_t lane) {
    std::vector<uint32_t> mask(MaskWords(vocab));
    for (uint32_t t = step % 3; t < vocab; t += 3) mask[t / 32] |= 1u << (t % 32);
    runner.WriteMask(0, mask, lane);
  };
  const auto wait = [&](uint32_t step) {
    ASSERT_OK(runner.WaitForStep());
    results.push_back(runner.Output(output, step % 2));
    EXPECT_EQ(results.back().candidates[0].token % 3, step % 3);
    EXPECT_EQ(runner.Guess(output, step % 2), results.back().candidates[0].token);
  };
  constexpr uint32_t kSteps = 6;
  for (uint32_t step = 0; step < kSteps; ++step) {
    const uint32_t lane = step % 2;
    const bool late = follow && step > 0;
    steps.Begin();
    steps.set_num_candidates(5);
    steps.set_want_logits(logits);
    if (rows > 1) {
      const std::vector<uint32_t> tokens = MakeTokens(runner.config(), rows - 1, 100 + step);
      steps.AddOutput(steps.AddRows(other, tokens) + rows - 2);
    }
    const uint32_t row = steps.AddRows(sequence, {step == 0 ? 3u : 0u});
    if (step > 0) steps.FeedRow(row, output);
    steps.AddOutput(row);
    steps.MaskOutput();
    write(late ? step + 1 : step, lane);  // a late one is another until then
    ASSERT_OK(runner.SubmitStep(steps.batch(), lane, late));
    if (step > 0) wait(step - 1);
    if (!late) continue;
    write(step, lane);
    runner.MasksReady();
  }
  wait(kSteps - 1);
}

TEST_F(WorkerSuite, MasksThatFollowGiveTheSameBitsAsMasksThatAreThere) {
  if (!worker().description().feeds_steps) GTEST_SKIP() << "it does not feed steps";
  const auto weights = testing::RandomWeightSet(testing::MakeConfig({}));
  for (const uint32_t rows : {1u, 2u, 19u}) {
    for (const bool logits : {false, true}) {
      SCOPED_TRACE(::testing::Message() << rows << " rows, logits: " << logits);
      std::vector<OutputResult> there, followed;
      ASSERT_OK_AND_ASSIGN(auto runner, RunWhole(weights, {.num_lanes = 2}));
      RunMasked(*runner, rows, logits, false, there);
      ASSERT_OK_AND_ASSIGN(runner, RunWhole(weights, {.num_lanes = 2}));
      RunMasked(*runner, rows, logits, true, followed);
      ASSERT_EQ(followed.size(), there.size());
      for (size_t step = 0; step < there.size(); ++step) {
        EXPECT_EQ(followed[step].log_sum_exp, there[step].log_sum_exp);
        for (uint32_t c = 0; c < 5; ++c) {
          EXPECT_EQ(followed[step].candidates[c].token, there[step].candidates[c].token);
          EXPECT_EQ(followed[step].candidates[c].logit, there[step].candidates[c].logit);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::conformance
