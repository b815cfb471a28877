// Sampler::near_tie: no draw changes by what logits move unless it was counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "services/gateway/sampling/sampler.h"
#include "services/gateway/sampling/testing/plain_sampler.h"

namespace tandem::gateway {
namespace {

// Logits as of a model: a few tokens far above the others, the highest about 15.
std::vector<float> PeakedLogits(size_t size, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> logits(size);
  for (float& logit : logits) logit = 2.5f * normal(random);
  for (int peak = 0; peak < 4; ++peak) logits[random() % size] = 12.0f + 1.5f * normal(random);
  return logits;
}

float Highest(const std::vector<float>& logits) {
  return *std::max_element(logits.begin(), logits.end());
}

Decision Draw(Sampler& sampler, const std::vector<float>& logits, uint32_t num_candidates = 0) {
  const uint32_t asked = std::max(num_candidates, sampler.NumCandidates());
  const bool needs_logits = sampler.NeedsLogits();
  return *sampler.Sample(MakeResult(logits, asked),
                         needs_logits ? std::span<const float>(logits) : std::span<const float>());
}

SamplingParams RandomParams(std::mt19937_64& random) {
  const auto one_of = [&](std::initializer_list<float> values) {
    return *(values.begin() + random() % values.size());
  };
  SamplingParams params;
  params.temperature = one_of({0.0f, 0.4f, 1.0f, 1.6f});
  params.top_k = static_cast<uint32_t>(one_of({0, 2, 5, 64, 128}));
  params.top_p = one_of({1.0f, 0.95f, 0.6f});
  params.min_p = one_of({0.0f, 0.0f, 0.05f, 0.3f});
  params.frequency_penalty = one_of({0.0f, 0.0f, 0.5f});
  params.seed = random();
  return params;
}

TEST(NearTieTest, CountsEveryDrawThatMovedLogitsCanChange) {
  std::mt19937_64 random(20261125);
  constexpr double kRounding = 0.01;
  int drawn = 0, near = 0, changed = 0;
  for (int round = 0; round < 3000; ++round) {
    const SamplingParams params = RandomParams(random);
    const std::vector<float> logits = PeakedLogits(400, random);
    Sampler watched(params, {}, 0);
    watched.WatchTies(kRounding);
    const uint32_t token = Draw(watched, logits, 2).token;
    ++drawn;
    near += watched.near_tie() ? 1 : 0;
    // At random, and as badly as possible for the best candidates.
    const float half = 0.4999f * static_cast<float>(kRounding) * Highest(logits);
    for (int variant = 0; variant < 12; ++variant) {
      std::vector<float> moved = logits;
      for (float& logit : moved) {
        const float part = variant < 4 ? static_cast<float>(random() % 2001) / 1000.0f - 1.0f
                                       : (random() % 2 == 0 ? 1.0f : -1.0f);
        logit += half * part;
      }
      Sampler other(params, {}, 0);
      if (Draw(other, moved, 2).token == token) continue;
      ++changed;
      EXPECT_TRUE(watched.near_tie())
          << "round " << round << " T " << params.temperature << " k " << params.top_k << " p "
          << params.top_p << " min_p " << params.min_p << " variant " << variant;
    }
  }
  // Both happen, and the count is no catch-all.
  EXPECT_GT(changed, 50);
  EXPECT_GT(near, 50);
  EXPECT_LT(near, drawn / 3);
}

TEST(NearTieTest, OfTheBestTwoIsTheirDistance) {
  SamplingParams greedy;
  greedy.temperature = 0.0f;
  std::vector<float> logits(50, -5.0f);
  logits[7] = 10.0f;
  for (const auto& [second, near] : {std::pair{9.89f, false}, {9.91f, true}, {-5.0f, false}}) {
    logits[8] = second;
    Sampler sampler(greedy, {}, 0);
    EXPECT_FALSE(sampler.near_tie());
    sampler.WatchTies(0.01);
    EXPECT_EQ(Draw(sampler, logits, 2).token, 7u);
    EXPECT_EQ(sampler.near_tie(), near) << second;
    // With one candidate alone: what the others have together bounds the second.
    Sampler one(greedy, {}, 0);
    one.WatchTies(0.01);
    Draw(one, logits);
    EXPECT_EQ(one.near_tie(), near) << second;
  }
}

TEST(NearTieTest, IsWatchedOnDemandAlone) {
  SamplingParams greedy;
  greedy.temperature = 0.0f;
  std::vector<float> logits(50, 1.0f);
  Sampler sampler(greedy, {}, 0);
  Draw(sampler, logits, 2);
  EXPECT_FALSE(sampler.near_tie()) << "all are equal, and nobody asked";
  sampler.WatchTies(1e-6);
  Draw(sampler, logits, 2);
  EXPECT_TRUE(sampler.near_tie());
}

TEST(NearTieTest, MovesByTheHighestLogitThatAMaskHides) {
  SamplingParams greedy;
  greedy.temperature = 0.0f;
  std::vector<float> logits(50, -40.0f);
  logits[3] = 20.0f;
  Sampler sampler(greedy, {}, 0);
  sampler.WatchTies(0.01);
  Draw(sampler, logits, 2);
  EXPECT_FALSE(sampler.near_tie());
  OutputResult masked = MakeResult(logits, 2);
  masked.candidates[0] = {5, 1.0f};
  masked.candidates[1] = {6, 0.85f};
  masked.log_sum_exp = 1.7f;
  const std::vector<uint32_t> mask = {0b1100000u, 0u};
  ASSERT_TRUE(sampler.Sample(masked, {}, mask).ok());
  EXPECT_TRUE(sampler.near_tie()) << "0.15 between them, 0.2 of 20 allowed";
}

}  // namespace
}  // namespace tandem::gateway
