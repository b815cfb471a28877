// Checkpoints on every placement against the outputs an independent implementation gave for them.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "services/common/reference/reference_model.h"
#include "services/common/testing/compare.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/step_builder.h"
#include "tests/evaluation/evaluation_fixture.h"
#include "tests/support/greedy.h"

namespace tandem::evaluation {
namespace {

using testing::GreedyOptions;
using testing::ReferenceOutputs;
using testing::ReferencePrompt;
using testing::RunLimits;

constexpr RunLimits kLimits = {.max_rows = 512,
                               .max_sequences = 8,
                               .max_outputs = 512,
                               .max_logit_outputs = 128,
                               .context_len = 3072,
                               .num_blocks = {1024, 1024}};

double Mean(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

class OutputsTest : public EvaluationTest,
                    public ::testing::WithParamInterface<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    Place(std::get<0>(GetParam()), folder(), kLimits);
    if (IsSkipped() || HasFatalFailure()) return;
    expected_ = &OpenReferenceOutputs(folder());
  }
  const std::string& checkpoint() const { return std::get<1>(GetParam()); }
  std::string folder() const { return TestDataPath(checkpoint()); }
  bool trained() const { return checkpoint() == "demo"; }

  std::vector<std::vector<uint32_t>> Prompts() const {
    std::vector<std::vector<uint32_t>> prompts;
    for (const ReferencePrompt& prompt : expected_->prompts) prompts.push_back(prompt.tokens);
    return prompts;
  }

  // Continuations of the prompts are the reference's wherever it is decided.
  void ExpectReferenceContinuations(const std::vector<std::vector<uint32_t>>& answers,
                                    const std::vector<ReferencePrompt>& prompts) {
    for (size_t i = 0; i < prompts.size(); ++i) {
      const size_t decided = prompts[i].NumDecidedSteps();
      ASSERT_GE(answers[i].size(), decided);
      for (size_t step = 0; step < decided; ++step) {
        ASSERT_EQ(answers[i][step], prompts[i].continuation[step])
            << prompts[i].text << " step " << step;
      }
    }
  }

  const ReferenceOutputs* expected_ = nullptr;
};

TEST_P(OutputsTest, DistributionsOfThePromptsAgree) {
  const size_t vocab = runner_->config().vocab_size;
  double worst_divergence = 0.0, worst_error = 0.0;
  for (const ReferencePrompt& prompt : expected_->prompts) {
    ASSERT_OK_AND_ASSIGN(const std::vector<float> logits,
                         testing::LastLogits(*runner_, prompt.tokens, prompt.num_logit_rows));
    ASSERT_EQ(logits.size(), prompt.logits.size());
    for (size_t at = 0; at < logits.size(); at += vocab) {
      const auto actual = std::span(logits).subspan(at, vocab);
      const auto expected = std::span(prompt.logits).subspan(at, vocab);
      worst_divergence = std::max(worst_divergence, testing::KlDivergence(expected, actual));
      worst_error = std::max(worst_error, testing::RelativeError(actual, expected));
    }
  }
  std::printf("worst divergence %.2e nats, worst relative error %.2e\n", worst_divergence,
              worst_error);
  EXPECT_LT(worst_divergence, 1e-3);
  if (!trained()) {
    EXPECT_LT(worst_error, 0.01);
  }
}

TEST_P(OutputsTest, LikelihoodOfTheLongTextAgrees) {
  ASSERT_OK_AND_ASSIGN(const std::vector<float> nll,
                       testing::NegativeLogLikelihoods(*runner_, expected_->long_tokens));
  ASSERT_EQ(nll.size(), expected_->long_nll.size());
  std::printf("mean nll %.5f, expected %.5f\n", Mean(nll), Mean(expected_->long_nll));
  EXPECT_NEAR(Mean(nll), Mean(expected_->long_nll), 0.003);
}

// Far past every window, against our own float32 arithmetic, which the files above vouch for.
TEST_P(OutputsTest, DistributionsOfEveryPositionOfTheLongTextAgree) {
  if (!trained()) GTEST_SKIP() << "distributions of random weights are flat";
  const size_t vocab = runner_->config().vocab_size;
  // The same on every placement.
  static const std::vector<float> expected =
      reference::ReferenceModel(*OpenCheckpoint(folder()).weights, {.num_threads = 2})
          .Logits(expected_->long_tokens);
  ASSERT_OK_AND_ASSIGN(const std::vector<float> actual,
                       testing::LastLogits(*runner_, expected_->long_tokens,
                                           static_cast<uint32_t>(expected_->long_tokens.size())));
  ASSERT_EQ(actual.size(), expected.size());
  double worst = 0.0;
  for (size_t at = 0; at < actual.size(); at += vocab) {
    const double divergence = testing::KlDivergence(std::span(expected).subspan(at, vocab),
                                                    std::span(actual).subspan(at, vocab));
    ASSERT_LT(divergence, 1e-3) << "position " << at / vocab;
    worst = std::max(worst, divergence);
  }
  std::printf("worst divergence of %zu positions %.2e nats\n", actual.size() / vocab, worst);
}

// Sums over the rows of chunks, past every window, against our own float32 arithmetic.
TEST_P(OutputsTest, MeanHiddenStatesAgreeWhateverTheChunks) {
  constexpr uint32_t kTokens = 300;
  const std::vector<uint32_t> tokens(expected_->long_tokens.begin(),
                                     expected_->long_tokens.begin() + kTokens);
  const reference::ReferenceModel model(*OpenCheckpoint(folder()).weights, {.num_threads = 2});
  std::vector<float> expected;
  (void)model.Logits(tokens, [&](Stage stage, const reference::Activations& rows) {
    if (stage != Stage{StageKind::kFfn, model.config().num_layers - 1}) return;
    expected = reference::Pool(model.parameters(), rows.residual);
  });
  for (const uint32_t chunk : {37u, kTokens}) {
    testing::StepBuilder steps(runner_->limits());
    const uint32_t sequence = steps.AddSequence();
    std::vector<float> sum(expected.size());
    for (uint32_t at = 0; at < kTokens; at += chunk) {
      steps.Begin();
      steps.AddRows(sequence, {tokens.begin() + at,
                               tokens.begin() + std::min<uint32_t>(at + chunk, kTokens)});
      steps.PoolLastRows();
      ASSERT_OK(runner_->RunStep(steps.batch()));
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += runner_->Pooled(0)[i];
    }
    const double error = testing::RelativeError(sum, expected);
    std::printf("chunk %u: relative error %.2e\n", chunk, error);
    EXPECT_LT(error, 0.01);
  }
}

TEST_P(OutputsTest, GreedyContinuationsAreTheSameWhateverTheBatch) {
  for (const uint32_t batch : {1u, 8u}) {
    SCOPED_TRACE(::testing::Message() << "batch " << batch);
    ASSERT_OK_AND_ASSIGN(const auto answers,
                         testing::DecodeGreedily(*runner_, Prompts(), {.max_sequences = batch}));
    ExpectReferenceContinuations(answers, expected_->prompts);
  }
}

// The prompt that is longer than every window, and a short answer.
TEST_P(OutputsTest, GreedyContinuationsAreTheSameWhateverTheChunks) {
  const auto longest = std::ranges::max_element(
      expected_->prompts, {}, [](const ReferencePrompt& prompt) { return prompt.tokens.size(); });
  ReferencePrompt prompt = *longest;
  prompt.margins.resize(std::min<size_t>(prompt.margins.size(), 16));
  ASSERT_GT(prompt.tokens.size(), 2 * runner_->config().sliding_window);
  std::vector<uint32_t> chunks = {7, 512};
  if (trained()) chunks.insert(chunks.end(), {1, 64});  // random weights show no more in these
  for (const uint32_t chunk : chunks) {
    SCOPED_TRACE(::testing::Message() << "chunk " << chunk);
    ASSERT_OK_AND_ASSIGN(
        const auto answers,
        testing::DecodeGreedily(*runner_, {prompt.tokens}, {.max_tokens = 16, .chunk = chunk}));
    ExpectReferenceContinuations(answers, {prompt});
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, OutputsTest,
                         ::testing::Combine(::testing::ValuesIn(PlacementNames()),
                                            ::testing::Values("demo", "random-1b-shape",
                                                              "random-27b-shape")),
                         [](const auto& test) {
                           return TestName(std::get<0>(test.param)) + "_" +
                                  TestName(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace tandem::evaluation
