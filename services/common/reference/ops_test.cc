#include "services/common/reference/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "services/common/reference/stages.h"
#include "services/common/testing/compare.h"
#include "services/common/testing/model_configs.h"

namespace tandem::reference {
namespace {

using tandem::testing::IsNear;

TEST(OpsTest, RmsNormOfAKnownVector) {
  // mean(x^2) = 12.5; 3 / sqrt(12.5) = 0.848528, 4 / sqrt(12.5) = 1.131371
  const std::vector<float> x = {3.0f, 4.0f}, weight = {1.0f, 2.0f};
  std::vector<float> out(2);
  RmsNorm(x, weight, 0.0f, out);
  EXPECT_TRUE(IsNear(out, std::vector<float>{0.8485281f, 2.2627417f}, 3e-7));
}

TEST(OpsTest, GeluTanhAtPublishedValues) {
  EXPECT_EQ(GeluTanh(0.0f), 0.0f);
  EXPECT_NEAR(GeluTanh(1.0f), 0.841192f, 1e-6f);
  EXPECT_NEAR(GeluTanh(-1.0f), -0.158808f, 1e-6f);
  EXPECT_NEAR(GeluTanh(10.0f), 10.0f, 1e-6f);
}

TEST(OpsTest, RotationTurnsPairsHalfAHeadApartAndKeepsTheirLength) {
  std::vector<float> head = {1.0f, 0.0f, 0.0f, 2.0f};  // pairs (0, 2) and (1, 3)
  Rotary rotary(4, 100.0f, 1.0f);
  rotary.SetPosition(3);
  rotary.Rotate(head);
  // Pair 0 turns by 3, pair 1 by 3 * 100^(-1/2) = 0.3.
  EXPECT_TRUE(IsNear(head,
                     std::vector<float>{std::cos(3.0f), -2.0f * std::sin(0.3f), std::sin(3.0f),
                                        2.0f * std::cos(0.3f)},
                     1e-6));
}

TEST(OpsTest, LinearScalingDividesPositions) {
  std::vector<float> scaled = {1.0f, 2.0f, 3.0f, 4.0f}, plain = scaled;
  Rotary eighth(4, 1e4f, 8.0f), whole(4, 1e4f, 1.0f);
  eighth.SetPosition(24);
  eighth.Rotate(scaled);
  whole.SetPosition(3);
  whole.Rotate(plain);
  EXPECT_TRUE(IsNear(scaled, plain, 1e-6));
}

TEST(OpsTest, AttentionWeighsValuesByKeysOfItsOwnGroup) {
  ModelConfig config = tandem::testing::MakeConfig({.num_heads = 4, .num_kv_heads = 2});
  config.attention_scale = 1.0f;
  const size_t dim = config.head_dim;
  // Heads 0, 1 read KV head 0; heads 2, 3 KV head 1.  q.k is ln 3 for position 1 in KV head 0, and
  // nothing elsewhere: weights 1/4, 3/4 and 1/2, 1/2.
  std::vector<float> q(config.q_dim(), 0.0f), key0(config.kv_dim(), 0.0f), key1 = key0;
  for (int head = 0; head < 4; ++head) q[head * dim] = 1.0f;
  key1[0] = std::log(3.0f);
  const std::vector<float> value0(config.kv_dim(), 1.0f), value1(config.kv_dim(), 5.0f);
  const float* keys[] = {key0.data(), key1.data()};
  const float* values[] = {value0.data(), value1.data()};
  std::vector<float> out(config.q_dim());
  AttendRow(config, q, keys, values, out);
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_NEAR(out[i], i / dim < 2 ? 4.0f : 3.0f, 1e-6f) << i;
  }
}

TEST(OpsTest, SlidingWindowCountsTheRowItself) {
  const ModelConfig config = tandem::testing::MakeConfig({.sliding_window = 24});
  EXPECT_EQ(FirstVisible(config, 0, 22), 0u);
  EXPECT_EQ(FirstVisible(config, 0, 23), 0u);
  EXPECT_EQ(FirstVisible(config, 0, 24), 1u);
  EXPECT_EQ(FirstVisible(config, 1, 200), 0u);  // global
}

TEST(OpsTest, CandidatesDescendAndTiesGoToTheLowerToken) {
  const std::vector<float> logits = {1.0f, 3.0f, 2.0f, 3.0f, -1.0f};
  const OutputResult result = SummariseLogits(logits, 4, 4);
  ASSERT_EQ(result.num_candidates, 4u);
  const uint32_t expected[] = {1, 3, 2, 0};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(result.candidates[i].token, expected[i]);
  EXPECT_EQ(result.target_logit, -1.0f);
  EXPECT_NEAR(result.log_sum_exp,
              std::log(2 * std::exp(3.0) + std::exp(2.0) + std::exp(1.0) + std::exp(-1.0)), 1e-6);
}

TEST(OpsTest, LogitsThatAreNoNumbersAreCountedAndNoCandidates) {
  const std::vector<float> logits = {std::nanf(""), 1.0f, std::numeric_limits<float>::infinity()};
  const OutputResult result = SummariseLogits(logits, 3, kNoToken);
  EXPECT_EQ(result.num_nonfinite, 2u);
  EXPECT_EQ(result.num_candidates, 1u);
}

}  // namespace
}  // namespace tandem::reference
