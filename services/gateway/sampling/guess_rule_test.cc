#include "services/gateway/sampling/guess_rule.h"

#include <gtest/gtest.h>

#include <random>

#include "services/common/reference/ops.h"
#include "services/gateway/sampling/random.h"

namespace tandem::gateway {
namespace {

TEST(GuessRuleTest, WhatPenaltiesBiasesOrAllLogitsDecideIsNotGuessed) {
  EXPECT_TRUE(GuessRule::For({}).has_value());
  EXPECT_FALSE(GuessRule::For({})->greedy());
  EXPECT_TRUE(GuessRule::For({.temperature = 0.0f, .top_k = 0})->greedy());
  EXPECT_TRUE(GuessRule::For({.logit_bias = {{7, 0.0f}}}).has_value());
  EXPECT_TRUE(GuessRule::For({.top_k = kMaxCandidates}).has_value());
  for (const SamplingParams& params :
       {SamplingParams{.top_k = 0}, SamplingParams{.top_k = kMaxCandidates + 1},
        SamplingParams{.repetition_penalty = 1.1f}, SamplingParams{.presence_penalty = 0.1f},
        SamplingParams{.frequency_penalty = -0.1f}, SamplingParams{.temperature = 1e-39f},
        SamplingParams{.temperature = 0.0f, .logit_bias = {{7, 1.0f}}}}) {
    EXPECT_FALSE(GuessRule::For(params).has_value());
  }
}

// The uniform number is rounded to float32: a guess differs where a boundary lies that near, some
// 1e-8 of the time for each boundary.
TEST(GuessRuleTest, GuessesAreTheSamplersDecisions) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits(50 + random() % 200);
    for (float& logit : logits) logit = normal(random);
    if (round % 5 == 0) logits[3] = logits[17] = 20.0f;  // a tie
    SamplingParams params{.temperature = 0.25f * static_cast<float>(random() % 8),
                          .top_k = 1 + static_cast<uint32_t>(random() % 128),
                          .top_p = random() % 3 == 0 ? 1.0f : 0.5f + 0.1f * (random() % 5),
                          .min_p = random() % 3 == 0 ? 0.05f : 0.0f,
                          .seed = random()};
    const auto rule = GuessRule::For(params);
    ASSERT_TRUE(rule.has_value());
    Sampler sampler(params, {}, 0);
    for (uint64_t n = 0; n < 20; ++n) {
      const OutputResult result =
          reference::SummariseLogits(logits, std::max(params.top_k, 3u), kNoToken);
      const auto decision = sampler.Sample(result, {});
      ASSERT_TRUE(decision.ok());
      DrawEntry draw;
      if (!rule->greedy()) draw = rule->At(n);
      EXPECT_EQ(reference::GuessToken(result, rule->greedy() ? nullptr : &draw), decision->token)
          << "round " << round << " draw " << n;
    }
  }
}

}  // namespace
}  // namespace tandem::gateway
