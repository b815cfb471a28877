#include "services/gateway/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "services/gateway/sampling/testing/plain_sampler.h"

namespace tandem::gateway {
namespace {

std::vector<float> RandomLogits(size_t size, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> logits(size);
  // Rounded, so that ties are common.
  for (float& logit : logits) logit = std::round(normal(random) * 8.0f) / 8.0f;
  return logits;
}

template <typename T>
T OneOf(std::initializer_list<T> values, std::mt19937_64& random) {
  return *(values.begin() + random() % values.size());
}

SamplingParams RandomParams(size_t vocab_size, std::mt19937_64& random) {
  SamplingParams params;
  params.temperature = OneOf({0.0f, 0.3f, 1.0f, 1.7f}, random);
  params.top_k = OneOf({0u, 1u, 5u, 64u, 120u, 127u, 128u, 129u, 300u}, random);
  params.top_p = OneOf({1.0f, 0.95f, 0.5f, 0.01f}, random);
  params.min_p = OneOf({0.0f, 0.0f, 0.05f, 1.0f}, random);
  params.repetition_penalty = OneOf({1.0f, 1.0f, 1.3f, 0.8f}, random);
  params.presence_penalty = OneOf({0.0f, 0.0f, 0.7f, -0.7f}, random);
  params.frequency_penalty = OneOf({0.0f, 0.0f, 0.4f, -0.4f}, random);
  params.penalty_window = OneOf({kWholeText, kWholeText, 1u, 3u, 40u}, random);
  params.seed = random();
  for (uint64_t i = random() % 3; i-- > 0;) {
    params.logit_bias[random() % vocab_size] = OneOf({-100.0f, -3.0f, 0.0f, 4.0f}, random);
  }
  return params;
}

TEST(SamplerTest, DecidesWhatThePlainRulesDecideWhicheverWayItIsFed) {
  std::mt19937_64 random(20240607);
  int num_from_candidates = 0;
  int num_from_logits = 0;
  for (int round = 0; round < 1500; ++round) {
    const size_t vocab_size = OneOf<size_t>({1, 2, 127, 128, 129, 509}, random);
    const SamplingParams params = RandomParams(vocab_size, random);
    ASSERT_TRUE(params.Validate(vocab_size).ok());
    std::vector<uint32_t> prompt(random() % 7);
    for (uint32_t& token : prompt) token = random() % vocab_size;
    Sampler sampler(params, prompt, 0);
    PlainSampler plain(params, prompt);
    for (int step = 0; step < 12; ++step) {
      SCOPED_TRACE(testing::Message()
                   << "round " << round << " step " << step << " T " << params.temperature << " k "
                   << params.top_k << " p " << params.top_p << " min_p " << params.min_p);
      const std::vector<float> logits = RandomLogits(vocab_size, random);
      const bool needs_logits = sampler.NeedsLogits();
      ++(needs_logits ? num_from_logits : num_from_candidates);
      const auto decision =
          sampler.Sample(MakeResult(logits, sampler.NumCandidates()),
                         needs_logits ? std::span<const float>(logits) : std::span<const float>());
      ASSERT_TRUE(decision.ok()) << decision.status();
      ASSERT_EQ(decision->token, plain.Sample(logits));
    }
    EXPECT_EQ(sampler.num_decided(), 12);
  }
  // Both ways were taken often.
  EXPECT_GT(num_from_candidates, 2000);
  EXPECT_GT(num_from_logits, 2000);
}

TEST(SamplerTest, DecidesOverALargeVocabularyWithoutTruncation) {
  std::mt19937_64 random(5);
  for (const float temperature : {0.7f, 3.0f, 100.0f}) {
    for (const float top_p : {1.0f, 0.9f}) {
      SamplingParams params;
      params.temperature = temperature;
      params.top_k = 0;
      params.top_p = top_p;
      Sampler sampler(params, {}, 0);
      PlainSampler plain(params, {});
      for (int step = 0; step < 5; ++step) {
        const std::vector<float> logits = RandomLogits(20011, random);
        ASSERT_TRUE(sampler.NeedsLogits());
        const auto decision = sampler.Sample(MakeResult(logits, 1), logits);
        ASSERT_TRUE(decision.ok());
        EXPECT_EQ(decision->token, plain.Sample(logits));
      }
    }
  }
}

TEST(SamplerTest, DoesNotMindMoreThanItAskedFor) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 100; ++round) {
    SamplingParams params = RandomParams(509, random);
    Sampler frugal(params, {}, 0);
    Sampler lavish(params, {}, 0);
    for (int step = 0; step < 5; ++step) {
      const std::vector<float> logits = RandomLogits(509, random);
      const bool needs_logits = frugal.NeedsLogits();
      const auto few =
          frugal.Sample(MakeResult(logits, frugal.NumCandidates()),
                        needs_logits ? std::span<const float>(logits) : std::span<const float>());
      const auto many = lavish.Sample(MakeResult(logits, kMaxCandidates), logits);
      ASSERT_TRUE(few.ok() && many.ok());
      EXPECT_EQ(few->token, many->token);
      EXPECT_EQ(few->logprob, many->logprob);
    }
  }
}

TEST(SamplerTest, GoesOnWhereAnotherStopped) {
  std::mt19937_64 random(8);
  SamplingParams params;
  params.repetition_penalty = 1.2f;
  params.frequency_penalty = 0.5f;
  params.seed = 99;
  const std::vector<uint32_t> prompt = {1, 2, 3};
  std::vector<std::vector<float>> rows;
  for (int i = 0; i < 20; ++i) rows.push_back(RandomLogits(300, random));
  Sampler whole(params, prompt, 0);
  std::vector<uint32_t> answer;
  for (const auto& row : rows) {
    answer.push_back(whole.Sample(MakeResult(row, kMaxCandidates), row)->token);
  }
  for (const size_t cut : {0, 1, 7, 19}) {
    Sampler resumed(params, prompt, 0);
    resumed.Resume(std::span(answer).first(cut));
    EXPECT_EQ(resumed.num_decided(), cut);
    for (size_t i = cut; i < rows.size(); ++i) {
      EXPECT_EQ(resumed.Sample(MakeResult(rows[i], kMaxCandidates), rows[i])->token, answer[i]);
    }
  }
}

TEST(SamplerTest, AsksForNoMoreThanItNeeds) {
  SamplingParams greedy;
  greedy.temperature = 0.0f;
  EXPECT_EQ(Sampler(greedy, {}, 0).NumCandidates(), 1);
  EXPECT_EQ(Sampler(greedy, {}, 5).NumCandidates(), 5);
  EXPECT_FALSE(Sampler(greedy, {}, 5).NeedsLogits());
  EXPECT_TRUE(Sampler(greedy, {}, kMaxCandidates + 1).NeedsLogits());

  SamplingParams penalised = greedy;
  penalised.repetition_penalty = 1.1f;
  std::vector<uint32_t> prompt = {4, 4, 5};
  EXPECT_EQ(Sampler(penalised, prompt, 0).NumCandidates(), 3);
  prompt.resize(kMaxCandidates);
  std::iota(prompt.begin(), prompt.end(), 0);
  EXPECT_TRUE(Sampler(penalised, prompt, 0).NeedsLogits());
  EXPECT_FALSE(Sampler(penalised, std::span(prompt).subspan(1), 0).NeedsLogits());

  SamplingParams raised = greedy;
  raised.presence_penalty = -0.1f;
  Sampler not_yet(raised, prompt, 0);
  EXPECT_FALSE(not_yet.NeedsLogits());  // nothing has been answered yet
  const std::vector<float> logits(300, 0.0f);
  ASSERT_TRUE(not_yet.Sample(MakeResult(logits, 1), {}).ok());
  EXPECT_TRUE(not_yet.NeedsLogits());

  SamplingParams sampled;
  EXPECT_EQ(Sampler(sampled, {}, 0).NumCandidates(), 64);
  sampled.top_k = 0;
  EXPECT_TRUE(Sampler(sampled, {}, 0).NeedsLogits());
  EXPECT_EQ(Sampler(sampled, {}, 0).NumCandidates(), 1);
}

TEST(SamplerTest, ReportsProbabilitiesBeforePenaltiesAndTemperature) {
  const std::vector<float> logits = {0.0f, 2.0f, 1.0f, -1.0f};
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit});
  SamplingParams params;
  params.temperature = 0.0f;
  params.logit_bias[1] = -50.0f;
  for (const bool with_logits : {false, true}) {
    if (with_logits) params.logit_bias[3] = 0.5f;  // raised: decided from all logits
    Sampler sampler(params, {}, 2);
    EXPECT_EQ(sampler.NeedsLogits(), with_logits);
    const auto decision = sampler.Sample(MakeResult(logits, 4), logits);
    ASSERT_TRUE(decision.ok());
    EXPECT_EQ(decision->token, 2);
    // One rounding of the log of the sum, one of the difference.
    const float tolerance = 4 * std::numeric_limits<float>::epsilon();
    EXPECT_NEAR(decision->logprob, 1.0 - std::log(sum), tolerance);
    ASSERT_EQ(decision->alternatives.size(), 2);
    EXPECT_EQ(decision->alternatives[0].token, 1);
    EXPECT_NEAR(decision->alternatives[0].logprob, 2.0 - std::log(sum), tolerance);
    EXPECT_EQ(decision->alternatives[1].token, 2);
  }
}

TEST(SamplerTest, TakesMoreAlternativesThanCandidatesFromTheLogits) {
  std::mt19937_64 random(9);
  const std::vector<float> logits = RandomLogits(1000, random);
  SamplingParams params;
  params.temperature = 0.0f;
  Sampler sampler(params, {}, 200);
  ASSERT_TRUE(sampler.NeedsLogits());
  const auto decision = sampler.Sample(MakeResult(logits, sampler.NumCandidates()), logits);
  ASSERT_TRUE(decision.ok());
  ASSERT_EQ(decision->alternatives.size(), 200);
  EXPECT_EQ(decision->alternatives[0].token, decision->token);
  EXPECT_TRUE(std::is_sorted(
      decision->alternatives.begin(), decision->alternatives.end(),
      [](const Alternative& a, const Alternative& b) { return a.logprob > b.logprob; }));
}

// Pearson's chi-squared test of 200,000 draws against the exact distribution.
TEST(SamplerTest, DrawsTheDistribution) {
  constexpr int kDraws = 200'000;
  const std::vector<float> logits = {1.5f, 0.2f, -0.4f, 2.1f, 0.0f, -3.0f, 1.0f, 0.9f};
  SamplingParams params;
  params.temperature = 1.3f;
  params.top_k = 6;
  params.top_p = 0.97f;
  params.seed = 424242;
  std::vector<double> expected(logits.size(), 0.0);
  double sum = 0.0;
  for (const uint32_t token : {3, 0, 6, 7, 1, 4}) {  // top-k; top-p keeps them all
    expected[token] = std::exp(double{logits[token]} / params.temperature);
    sum += expected[token];
  }
  std::vector<int> counts(logits.size(), 0);
  const OutputResult result = MakeResult(logits, 6);
  Sampler sampler(params, {}, 0);
  for (int i = 0; i < kDraws; ++i) ++counts[sampler.Sample(result, {})->token];
  double chi_squared = 0.0;
  for (size_t token = 0; token < logits.size(); ++token) {
    if (expected[token] == 0.0) {
      EXPECT_EQ(counts[token], 0);
      continue;
    }
    const double mean = expected[token] / sum * kDraws;
    chi_squared += (counts[token] - mean) * (counts[token] - mean) / mean;
  }
  EXPECT_LT(chi_squared, 20.5);  // 5 degrees of freedom: exceeded once in a thousand seeds
  EXPECT_GT(chi_squared, 0.15);  // nor too good to be random
}

TEST(SamplerTest, RefusesResultsThatAreNotFinite) {
  const std::vector<float> logits = {1.0f, 2.0f};
  const float inf = std::numeric_limits<float>::infinity();
  const auto code = [&](auto spoil) {
    OutputResult result = MakeResult(logits, 2);
    spoil(result);
    Sampler sampler({}, {}, 0);
    return sampler.Sample(result, {}).status().code();
  };
  EXPECT_EQ(code([](OutputResult&) {}), absl::StatusCode::kOk);
  EXPECT_EQ(code([](OutputResult& r) { r.num_nonfinite = 1; }), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code([&](OutputResult& r) { r.log_sum_exp = inf; }), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code([&](OutputResult& r) { r.candidates[1].logit = std::nanf(""); }),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(code([](OutputResult& r) { r.num_candidates = 0; }), absl::StatusCode::kInternal);
  EXPECT_EQ(code([](OutputResult& r) { r.num_candidates = kMaxCandidates + 1; }),
            absl::StatusCode::kInternal);
}

// Needs that look ahead are enough for each of the tokens that they cover.
TEST(SamplerTest, WhatTheNextTokensNeedTogetherIsEnoughForEach) {
  std::mt19937 random(9);
  for (int round = 0; round < 200; ++round) {
    SamplingParams params{.temperature = random() % 3 == 0 ? 0.0f : 1.0f,
                          .top_k = static_cast<uint32_t>(random() % 130),
                          .seed = random()};
    if (random() % 2 == 0) params.repetition_penalty = random() % 2 == 0 ? 1.2f : 0.8f;
    if (random() % 2 == 0) params.presence_penalty = random() % 2 == 0 ? 0.5f : -0.5f;
    if (random() % 2 == 0) params.penalty_window = 1 + random() % 10;
    const std::vector<uint32_t> prompt(1 + random() % 20, 3);
    Sampler sampler(params, prompt, random() % 5);
    for (uint32_t n = random() % 30; n > 0; --n) sampler.Take(random() % 100);
    const uint32_t ahead = 1 + random() % 8;
    const bool logits = sampler.NeedsLogitsWithin(ahead);
    const uint32_t num_candidates = sampler.NumCandidatesWithin(ahead);
    for (uint32_t n = 0; n <= ahead; ++n) {
      ASSERT_TRUE(logits || !sampler.NeedsLogits()) << "round " << round;
      ASSERT_GE(num_candidates, sampler.NumCandidates()) << "round " << round;
      sampler.Take(random() % 100);
    }
  }
}

}  // namespace
}  // namespace tandem::gateway
