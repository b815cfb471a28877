// The tokens drawn under guesses have exactly the sampler's distribution: chi-squared, for guesses
// that are good, bad, and adversarial (always the least probable token, or always the most).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "services/common/base/sanitized.h"
#include "services/gateway/engine/testing/toy_model.h"
#include "services/gateway/scheduler/scheduler.h"

namespace tandem::gateway {
namespace {

constexpr uint32_t kVocab = 24;
// A case.  Sanitizers watch how they are made, which a few show.
constexpr uint32_t kDraws = kSanitized ? 4000 : 40000;
constexpr uint32_t kAnswer = 40;  // tokens of a sequence

enum class Guessing { kNone, kRight, kOften, kLeastProbable, kMostProbable };

std::vector<float> FixedLogits() {
  std::vector<float> logits(kVocab);
  for (uint32_t t = 0; t < kVocab; ++t) logits[t] = 2.5f * std::sin(1.7f * static_cast<float>(t));
  return logits;
}

SchedulerOptions DistributionOptions() {
  SchedulerOptions options;
  options.limits = {.max_rows = 64,
                    .max_sequences = 4,
                    .max_outputs = 64,
                    .max_logit_outputs = 64,
                    .max_table_len = 512,
                    .vocab_size = kVocab,
                    .context_len = 64,
                    .block_tokens = 8,
                    .sliding_window = 16,
                    .num_blocks = {64, 64}};
  options.max_sequences = 4;
  options.max_rows = 64;
  options.chunk_rows = 64;
  return options;
}

// The answer of a sequence as the scheduler's steps decide it, at logits that are always the same.
std::vector<uint32_t> Answer(Scheduler& scheduler, uint64_t id, const SamplingParams& params,
                             Guessing guessing, std::mt19937& random) {
  const std::vector<float> logits = FixedLogits();
  const OutputResult head = testing::ToyHead(logits, kVocab, kNoToken);
  const std::vector<uint32_t> prompt = {1, 2, 3};
  Sampler sampler(params, prompt, 0);
  Sampler oracle(params, prompt, 0);
  std::vector<uint32_t> truth;
  for (uint32_t n = 0; n < kAnswer + 8; ++n) truth.push_back(oracle.Sample(head, logits)->token);
  std::vector<uint32_t> answer;
  EXPECT_TRUE(scheduler.Add({.id = id, .prompt = prompt, .max_answer = kAnswer}).ok());
  while (answer.size() < kAnswer) {
    DraftPlaces found;
    scheduler.FindDraftPlaces(found);
    if (guessing != Guessing::kNone && !found.places.empty()) {
      std::vector<uint32_t> guesses;
      while (guesses.size() < std::min(found.places[0].max_guesses, 4u)) {
        uint32_t guess = truth[answer.size() + guesses.size()];
        if (guessing == Guessing::kOften && random() % 2 == 0) guess = random() % kVocab;
        if (guessing == Guessing::kLeastProbable) guess = head.candidates[kVocab - 1].token;
        if (guessing == Guessing::kMostProbable) guess = head.candidates[0].token;
        guesses.push_back(guess);
      }
      scheduler.Draft(id, guesses, {});
    }
    const ScheduledStep* step = scheduler.Schedule();
    scheduler.StepDone();
    for (const ScheduledOutput& output : step->outputs) {
      if (!scheduler.IsValid(step->batch.header.step_id, id, output.position)) continue;
      answer.push_back(sampler.Sample(head, logits)->token);
      if (answer.size() < kAnswer) scheduler.Append(id, answer.back(), {});
    }
  }
  scheduler.Remove(id);
  return answer;
}

// Probabilities of the first token of an answer, by the definition of the sampler's steps.
std::vector<double> FirstDistribution(const SamplingParams& params) {
  // The fraction of the interval of the uniform number that leads to each token.
  std::vector<double> shares(kVocab, 0.0);
  const std::vector<float> logits = FixedLogits();
  std::vector<std::pair<float, uint32_t>> order;
  for (uint32_t t = 0; t < kVocab; ++t) {
    float logit = logits[t];
    const bool seen = t >= 1 && t <= 3;
    if (seen)
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    const auto bias = params.logit_bias.find(t);
    if (bias != params.logit_bias.end()) {
      logit = logits[t] + bias->second;
      if (seen)
        logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
    order.emplace_back(-logit, t);
  }
  std::sort(order.begin(), order.end());
  if (params.top_k > 0 && params.top_k < order.size()) order.resize(params.top_k);
  std::vector<double> weights;
  double sum = 0.0;
  for (const auto& [negative, token] : order) {
    weights.push_back(std::exp((order[0].first - negative) / params.temperature));
    sum += weights.back();
  }
  double kept = 0.0;
  size_t count = 0;
  while (count < weights.size() && (params.top_p >= 1.0f || kept < params.top_p * sum) &&
         weights[count] >= params.min_p) {
    kept += weights[count++];
  }
  for (size_t i = 0; i < count; ++i) shares[order[i].second] = weights[i] / kept;
  return shares;
}

struct DistributionCase {
  const char* name;
  SamplingParams params;
};

class DraftedDistributionTest : public ::testing::TestWithParam<DistributionCase> {};

TEST_P(DraftedDistributionTest, TokensAreThoseOfTheSeedAndOfTheExactDistribution) {
  const std::vector<double> expected = FirstDistribution(GetParam().params);
  for (const Guessing guessing : {Guessing::kNone, Guessing::kRight, Guessing::kOften,
                                  Guessing::kLeastProbable, Guessing::kMostProbable}) {
    SCOPED_TRACE(static_cast<int>(guessing));
    auto scheduler = Scheduler::Create(DistributionOptions()).value();
    std::mt19937 random(4);
    std::vector<double> counts(kVocab, 0.0);
    double total = 0.0;
    for (uint64_t id = 1; id <= kDraws / kAnswer; ++id) {
      SamplingParams params = GetParam().params;
      params.seed = 7919 * id;
      const std::vector<uint32_t> answer = Answer(*scheduler, id, params, guessing, random);
      if (id <= 20) {
        ASSERT_EQ(answer, Answer(*scheduler, id + 1000000, params, Guessing::kNone, random));
      }
      // Penalties of the answer change the distribution with every token; otherwise all count.
      const size_t use =
          params.presence_penalty != 0 || params.repetition_penalty != 1 ? 1 : kAnswer;
      for (size_t n = 0; n < use; ++n) ++counts[answer[n]];
      total += static_cast<double>(use);
    }
    double chi_squared = 0.0;
    double freedom = -1.0;
    for (uint32_t t = 0; t < kVocab; ++t) {
      if (expected[t] == 0.0) {
        EXPECT_EQ(counts[t], 0.0) << "token " << t;
        continue;
      }
      const double want = expected[t] * total;
      if (want < 5) continue;
      chi_squared += (counts[t] - want) * (counts[t] - want) / want;
      ++freedom;
    }
    ASSERT_GT(freedom, 2.0);
    // Mean and variance of chi-squared are its freedom and twice that; beyond 5 deviations.
    EXPECT_LT(chi_squared, freedom + 5 * std::sqrt(2 * freedom)) << "freedom " << freedom;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Samplers, DraftedDistributionTest,
    ::testing::Values(
        DistributionCase{"Plain", {.temperature = 1.0f, .top_k = 0, .top_p = 1.0f}},
        DistributionCase{"TopK", {.temperature = 0.8f, .top_k = 9, .top_p = 1.0f}},
        DistributionCase{"TopP", {.temperature = 1.2f, .top_k = 0, .top_p = 0.8f}},
        DistributionCase{"MinP", {.temperature = 1.0f, .top_k = 20, .top_p = 1.0f, .min_p = 0.2f}},
        DistributionCase{
            "Repetition",
            {.temperature = 1.0f, .top_k = 0, .top_p = 1.0f, .repetition_penalty = 1.5f}},
        DistributionCase{
            "Bias", {.temperature = 1.0f, .top_k = 16, .top_p = 0.95f, .logit_bias = {{2, 1.5f}}}}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tandem::gateway
