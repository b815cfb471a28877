// Our float32 arithmetic over packed weights of the test checkpoints, compared with an independent
// implementation's results for the same files.  This tests readers, packing and the reference
// together; other tests compare kernels with the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "services/common/reference/ops.h"
#include "services/common/reference/reference_model.h"
#include "services/common/testing/compare.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/status_matchers.h"
#include "tests/support/checkpoint.h"
#include "tests/support/reference_outputs.h"

namespace tandem {
namespace {

class CheckpointReferenceTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string folder = TestDataPath(GetParam());
    ASSERT_OK_AND_ASSIGN(const auto checkpoint, testing::LoadCheckpoint(folder));
    model_ = std::make_unique<reference::ReferenceModel>(
        *checkpoint.weights, reference::ReferenceOptions{.num_threads = 2});
    ASSERT_OK_AND_ASSIGN(expected_, testing::LoadReferenceOutputs(folder));
    ASSERT_EQ(expected_.prompts.size(), 8u);
  }
  std::span<const float> Row(const std::vector<float>& logits, size_t position) const {
    const size_t vocab = model_->config().vocab_size;
    return std::span(logits).subspan(position * vocab, vocab);
  }

  std::unique_ptr<reference::ReferenceModel> model_;
  testing::ReferenceOutputs expected_;
};

// Float32 against float64: a layer's products of some hundred terms and its norms each add a few
// units of 2^-24, which layers hand on with a gain of order one.
TEST_P(CheckpointReferenceTest, LogitsAreRightToTheLastDigits) {
  const testing::ExactLogits& exact = expected_.exact;
  const std::vector<uint32_t>& tokens = expected_.prompts[exact.prompt].tokens;
  const std::vector<float> logits = model_->Logits(tokens);
  for (size_t i = 0; i < exact.logits.size(); ++i) {
    const auto row = Row(logits, tokens.size() - exact.logits.size() + i);
    std::vector<float> picked;
    for (size_t token = 0; token < row.size(); token += exact.stride) picked.push_back(row[token]);
    const double bound = 8 * model_->config().num_layers * testing::kEpsilonF32;
    EXPECT_TRUE(testing::IsNearInNorm(picked, exact.logits[i], bound)) << "row " << i;
  }
}

TEST_P(CheckpointReferenceTest, LogitsOfEveryPromptAgree) {
  double worst = 0.0;
  for (const testing::ReferencePrompt& prompt : expected_.prompts) {
    const std::vector<float> logits = model_->Logits(prompt.tokens);
    const size_t first = prompt.tokens.size() - prompt.num_logit_rows;
    for (uint32_t row = 0; row < prompt.num_logit_rows; ++row) {
      const auto actual = Row(logits, first + row);
      const auto expected = Row(prompt.logits, row);
      worst = std::max(worst, testing::RelativeError(actual, expected));
      ASSERT_TRUE(testing::IsNearInNorm(actual, expected, testing::kReferenceError))
          << prompt.text << " row " << row;
    }
  }
  std::printf("worst relative error %.2e\n", worst);
}

TEST_P(CheckpointReferenceTest, ContinuationsAreTheSame) {
  size_t compared = 0;
  for (const testing::ReferencePrompt& prompt : expected_.prompts) {
    std::vector<uint32_t> tokens = prompt.tokens;
    tokens.insert(tokens.end(), prompt.continuation.begin(), prompt.continuation.end());
    const std::vector<float> logits = model_->Logits(tokens);
    for (size_t i = 0; i < prompt.NumDecidedSteps(); ++i) {
      const auto row = Row(logits, prompt.tokens.size() - 1 + i);
      ASSERT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), prompt.continuation[i])
          << prompt.text << " step " << i;
      ++compared;
    }
  }
  EXPECT_GT(compared, 100u);
}

TEST_P(CheckpointReferenceTest, LikelihoodsOfTheLongTextAgree) {
  const std::vector<float> logits = model_->Logits(expected_.long_tokens);
  double worst = 0.0, sum = 0.0, expected_sum = 0.0;
  for (size_t i = 0; i < expected_.long_nll.size(); ++i) {
    const auto row = Row(logits, i);
    const float nll = reference::LogSumExp(row) - row[expected_.long_tokens[i + 1]];
    worst = std::max(worst, std::fabs(double{nll} - double{expected_.long_nll[i]}));
    sum += nll;
    expected_sum += expected_.long_nll[i];
  }
  const auto n = static_cast<double>(expected_.long_nll.size());
  std::printf("mean nll %.6f, expected %.6f, worst token off by %.2e\n", sum / n, expected_sum / n,
              worst);
  EXPECT_NEAR(sum / n, expected_sum / n, 1e-4);
  EXPECT_LT(worst, 2e-2);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, CheckpointReferenceTest,
                         ::testing::Values("demo", "random-1b-shape", "random-27b-shape"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace tandem
