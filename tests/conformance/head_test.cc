// The results of the head: candidates, log-sum-exp, targets, logits.
#include <algorithm>
#include <cmath>
#include <limits>

#include "services/common/reference/ops.h"
#include "services/common/reference/stages.h"
#include "tests/conformance/worker_suite.h"

namespace tandem::conformance {
namespace {

class HeadTest : public WorkerSuite, public ::testing::WithParamInterface<uint32_t> {
 protected:
  static constexpr uint32_t kRows = 5;

  void SetUp() override {
    WorkerSuite::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (!Offers(StageKind::kHead)) GTEST_SKIP() << "no Head";
  }

  // Loads the head alone over a vocabulary of `vocab_size`.
  void Load(uint32_t vocab_size) {
    config_ = testing::MakeConfig({.num_layers = 1, .vocab_size = vocab_size});
    ASSERT_OK_AND_ASSIGN(
        runner_, PlanRunner::Create(testing::RandomWeightSet(config_), {&worker()},
                                    {testing::SingleStage({StageKind::kHead, 0}, config_)}, {}));
    residual_.resize(size_t{kRows} * config_.hidden_dim);
    for (size_t i = 0; i < residual_.size(); ++i) residual_[i] = std::sin(0.37f * (i + 1));
  }

  // Outputs are rows 4, 0, 4: in no order, one twice.
  void Run(uint32_t num_candidates, bool want_logits, uint32_t target = kNoToken) {
    StepBuilder steps(runner_->limits());
    steps.Begin();
    steps.AddRows(steps.AddSequence(), std::vector<uint32_t>(kRows, 0));
    steps.AddOutput(4, target);
    steps.AddOutput(0);
    steps.AddOutput(4);
    steps.set_num_candidates(num_candidates);
    steps.set_want_logits(want_logits);
    runner_->FillGuards();
    ASSERT_OK(runner_->WriteAndCheckStep(steps.batch()));
    runner_->WritePort(Port::kResidual, residual_);
    ASSERT_OK(runner_->RunSegment(0));
    EXPECT_TRUE(runner_->GuardsIntact());
  }

  ModelConfig config_;
  std::unique_ptr<PlanRunner> runner_;
  std::vector<float> residual_;
};

// Candidates by the worker's own logits, exactly: the largest, descending, ties to the lower token.
TEST_P(HeadTest, CandidatesAreTheLargestLogits) {
  ASSERT_NO_FATAL_FAILURE(Load(GetParam()));
  for (const uint32_t num_candidates : {1u, 2u, 7u, 64u, kMaxCandidates}) {
    SCOPED_TRACE(::testing::Message() << num_candidates << " candidates");
    const uint32_t target = GetParam() / 2;
    ASSERT_NO_FATAL_FAILURE(Run(num_candidates, true, target));
    for (uint32_t o = 0; o < 3; ++o) {
      const std::span<const float> logits = runner_->Logits(o);
      const OutputResult expected =
          reference::SummariseLogits(logits, num_candidates, o == 0 ? target : kNoToken);
      const OutputResult& actual = runner_->Output(o);
      ASSERT_EQ(actual.num_candidates, expected.num_candidates);
      for (uint32_t i = 0; i < expected.num_candidates; ++i) {
        ASSERT_EQ(actual.candidates[i].token, expected.candidates[i].token) << "candidate " << i;
        ASSERT_EQ(actual.candidates[i].logit, expected.candidates[i].logit) << "candidate " << i;
      }
      if (o == 0) {
        EXPECT_EQ(actual.target_logit, logits[target]);
      }
      EXPECT_EQ(actual.num_nonfinite, 0u);
      // A sum of positive float32 terms whose exponentials are good to a few units.
      const double bound = 16 * testing::kEpsilonF32 * std::sqrt(GetParam());
      EXPECT_NEAR(actual.log_sum_exp, expected.log_sum_exp, bound);
    }
    EXPECT_TRUE(std::ranges::equal(runner_->Logits(0), runner_->Logits(2)));
  }
}

TEST_P(HeadTest, CandidatesAreTheSameWithoutTheLogits) {
  ASSERT_NO_FATAL_FAILURE(Load(GetParam()));
  ASSERT_NO_FATAL_FAILURE(Run(40, true));
  std::vector<OutputResult> with;
  for (uint32_t o = 0; o < 3; ++o) with.push_back(runner_->Output(o));
  ASSERT_NO_FATAL_FAILURE(Run(40, false));
  for (uint32_t o = 0; o < 3; ++o) {
    const OutputResult& without = runner_->Output(o);
    EXPECT_EQ(without.log_sum_exp, with[o].log_sum_exp);
    ASSERT_EQ(without.num_candidates, with[o].num_candidates);
    ASSERT_LE(without.num_candidates, kMaxCandidates);
    for (uint32_t i = 0; i < without.num_candidates; ++i) {
      EXPECT_EQ(without.candidates[i].token, with[o].candidates[i].token);
      EXPECT_EQ(without.candidates[i].logit, with[o].candidates[i].logit);
    }
  }
}

TEST_P(HeadTest, TiesGoToTheLowerToken) {
  ASSERT_NO_FATAL_FAILURE(Load(GetParam()));
  std::ranges::fill(residual_, 0.0f);  // every logit is zero
  ASSERT_NO_FATAL_FAILURE(Run(kMaxCandidates, false));
  const OutputResult& result = runner_->Output(1);
  ASSERT_EQ(result.num_candidates, std::min(kMaxCandidates, GetParam()));
  for (uint32_t i = 0; i < result.num_candidates; ++i) {
    ASSERT_EQ(result.candidates[i].token, i);
    ASSERT_EQ(result.candidates[i].logit, 0.0f);
  }
  EXPECT_NEAR(result.log_sum_exp, std::log(static_cast<double>(GetParam())), 1e-5);
}

TEST_P(HeadTest, LogitsThatAreNoNumbersAreCounted) {
  ASSERT_NO_FATAL_FAILURE(Load(GetParam()));
  residual_[7] = std::nanf("");  // of row 0, which is output 1
  ASSERT_NO_FATAL_FAILURE(Run(3, false));
  EXPECT_EQ(runner_->Output(0).num_nonfinite, 0u);
  EXPECT_EQ(runner_->Output(1).num_nonfinite, GetParam());
  EXPECT_EQ(runner_->Output(2).num_nonfinite, 0u);
}

// Output 1 has a mask, its neighbours have none.
TEST_P(HeadTest, AMaskLeavesTheAllowedTokensAlone) {
  ASSERT_NO_FATAL_FAILURE(Load(GetParam()));
  const uint32_t vocab = GetParam();
  for (const uint32_t in : {1u, 3u, vocab}) {
    SCOPED_TRACE(::testing::Message() << "one token in " << in);
    std::vector<uint32_t> mask(MaskWords(vocab));
    for (uint32_t t = vocab / 2 % in; t < vocab; t += in) mask[t / 32] |= 1u << (t % 32);
    StepBuilder steps(runner_->limits());
    steps.Begin();
    steps.AddRows(steps.AddSequence(), std::vector<uint32_t>(kRows, 0));
    steps.AddOutput(4);
    steps.AddOutput(0);
    const uint32_t index = steps.MaskOutput();
    steps.AddOutput(4);
    steps.set_num_candidates(40);
    steps.set_want_logits(true);
    runner_->FillGuards();
    ASSERT_OK(runner_->WriteAndCheckStep(steps.batch()));
    runner_->WriteMask(index, mask);
    runner_->WritePort(Port::kResidual, residual_);
    ASSERT_OK(runner_->RunSegment(0));
    EXPECT_TRUE(runner_->GuardsIntact());
    for (uint32_t o = 0; o < 3; ++o) {
      const OutputResult expected = reference::SummariseLogits(
          runner_->Logits(o), 40, kNoToken,
          o == 1 ? std::span<const uint32_t>(mask) : std::span<const uint32_t>());
      const OutputResult& actual = runner_->Output(o);
      ASSERT_EQ(actual.num_candidates, expected.num_candidates);
      for (uint32_t i = 0; i < expected.num_candidates; ++i) {
        ASSERT_EQ(actual.candidates[i].token, expected.candidates[i].token) << "candidate " << i;
        ASSERT_EQ(actual.candidates[i].logit, expected.candidates[i].logit) << "candidate " << i;
      }
      EXPECT_NEAR(
          actual.log_sum_exp, expected.log_sum_exp,
          16 * testing::kEpsilonF32 * std::sqrt(vocab) * (1 + std::abs(expected.log_sum_exp)));
      EXPECT_EQ(runner_->Guess(o), actual.candidates[0].token);
    }
  }
}

// Below, at and above the most candidates, a workgroup and a power of two.
INSTANTIATE_TEST_SUITE_P(Vocabularies, HeadTest,
                         ::testing::Values(1u, 97u, 127u, 128u, 129u, 1024u, 4099u));

}  // namespace
}  // namespace tandem::conformance
