#include "services/gateway/executor/step_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>

#include "services/common/testing/model_configs.h"
#include "services/common/testing/plan_runner.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/step_builder.h"
#include "services/worker_host/in_process_worker.h"

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class StepResultsTest : public ::testing::Test {
 protected:
  StepResultsTest() {
    limits_ = testing::MakeStepLimits(config_, {.max_rows = 16, .max_sequences = 2});
    limits_.max_outputs = limits_.max_logit_outputs = 3;
    exchange_ = testing::MakeLocalExchange(config_, limits_, 2);
    results_.Reset(2, limits_);
    header_.num_outputs = 3;
    header_.num_candidates = 5;
    for (uint32_t o = 0; o < 3; ++o) {
      Result(o) = {.log_sum_exp = 4.0f, .target_logit = -2.0f, .num_candidates = 5};
      for (uint32_t c = 0; c < 5; ++c) Result(o).candidates[c] = {c + o, 3.0f - c};
      Guesses()[o] = o;
    }
  }
  OutputResult& Result(uint32_t o) {
    return reinterpret_cast<OutputResult*>(
        exchange_->Area(1, exchange_->layout.candidates).data())[o];
  }
  uint32_t* Guesses() {
    return reinterpret_cast<uint32_t*>(exchange_->Area(1, exchange_->layout.guesses).data());
  }
  float* Logits(uint32_t o) {
    return reinterpret_cast<float*>(exchange_->Area(1, exchange_->layout.logits).data() +
                                    o * exchange_->layout.logits.row_bytes);
  }
  absl::Status Take() { return results_.Take(*exchange_, 1, header_, true); }

  const ModelConfig config_ = testing::MakeConfig({.num_layers = 2});
  StepLimits limits_;
  StepHeader header_;
  std::shared_ptr<const Exchange> exchange_;
  StepResults results_;
};

TEST_F(StepResultsTest, WhatWasTakenNoLongerChanges) {
  ASSERT_OK(Take());
  Result(2).candidates[0].token = 1u << 30;
  Result(2).num_candidates = 1u << 30;
  Guesses()[2] = 1u << 30;
  EXPECT_EQ(results_.Output(1, 2).candidates[0].token, 2u);
  EXPECT_EQ(results_.Output(1, 2).num_candidates, 5u);
  EXPECT_EQ(results_.Output(1, 2).log_sum_exp, 4.0f);
  EXPECT_EQ(results_.Guess(1, 2), 2u);
}

TEST_F(StepResultsTest, WhatNoHeadWritesIsRefusedByOutputAndValue) {
  struct Case {
    const char* reason;
    std::function<void(OutputResult&)> spoil;
  };
  const uint32_t vocab_size = config_.vocab_size;
  const Case cases[] = {
      {"output 1 has 6 candidates, 5", [](auto& r) { r.num_candidates = 6; }},
      {"output 1 has no candidates", [](auto& r) { r.num_candidates = 0; }},
      {"output 1 names token", [=](auto& r) { r.candidates[4].token = vocab_size; }},
      {"log-sum-exp nan", [](auto& r) { r.log_sum_exp = kNan; }},
      {"log-sum-exp inf", [](auto& r) { r.log_sum_exp = kInfinity; }},
      {"target logit nan", [](auto& r) { r.target_logit = kNan; }},
      {"has logit 3 at candidate 0, above", [](auto& r) { r.log_sum_exp = 2.9f; }},
      {"has logit 2.5 at candidate 2", [](auto& r) { r.candidates[2].logit = 2.5f; }},
      {"has logit nan at candidate 3", [](auto& r) { r.candidates[3].logit = kNan; }},
      {"has logit -inf at candidate 4", [](auto& r) { r.candidates[4].logit = -kInfinity; }},
      {"logits that are not finite", [=](auto& r) { r.num_nonfinite = vocab_size + 1; }},
  };
  for (const Case& wrong : cases) {
    const OutputResult before = Result(1);
    wrong.spoil(Result(1));
    EXPECT_THAT(Take(), StatusIs(absl::StatusCode::kInternal, HasSubstr(wrong.reason)));
    Result(1) = before;
    ASSERT_OK(Take());
  }
  Guesses()[0] = vocab_size;
  EXPECT_THAT(Take(), StatusIs(absl::StatusCode::kInternal, HasSubstr("output 0 guesses token")));
  EXPECT_OK(results_.Take(*exchange_, 1, header_, false)) << "nothing is fed from it";
}

TEST_F(StepResultsTest, NanFromTheModelIsLeftToTheRequest) {
  Result(1).num_nonfinite = 7;
  Result(1).log_sum_exp = kNan;
  ASSERT_OK(Take());
  EXPECT_EQ(results_.Output(1, 1).num_nonfinite, 7u);
}

TEST_F(StepResultsTest, LogitsAreFiniteWhereTheyWereAskedFor) {
  Logits(2)[config_.vocab_size - 1] = kNan;
  ASSERT_OK(Take());
  header_.want_logits = 1;
  EXPECT_THAT(Take(), StatusIs(absl::StatusCode::kInternal, HasSubstr("output 2 has logit nan")));
}

TEST_F(StepResultsTest, AnEqualLogSumAndEqualLogitsPass) {
  Result(0).log_sum_exp = 3.0f;  // one token has all the weight
  Result(0).candidates[1].logit = 3.0f;
  EXPECT_OK(Take());
}

}  // namespace
}  // namespace tandem::gateway
