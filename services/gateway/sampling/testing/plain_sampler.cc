#include "services/gateway/sampling/testing/plain_sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "services/gateway/sampling/random.h"

namespace tandem::gateway {

OutputResult MakeResult(const std::vector<float>& logits, uint32_t num_candidates) {
  OutputResult result;
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - logits[order[0]]);
  result.log_sum_exp = static_cast<float>(std::log(sum) + logits[order[0]]);
  result.num_candidates = std::min<uint32_t>(num_candidates, logits.size());
  for (uint32_t i = 0; i < result.num_candidates; ++i) {
    result.candidates[i] = {order[i], logits[order[i]]};
  }
  return result;
}

PlainSampler::PlainSampler(SamplingParams params, std::vector<uint32_t> prompt)
    : params_(std::move(params)), prompt_(std::move(prompt)) {}

uint32_t PlainSampler::Sample(std::vector<float> logits) {
  for (const auto& [token, bias] : params_.logit_bias) logits[token] += bias;
  const size_t window = params_.penalty_window;
  const auto answer = answer_.end() - std::min(window, answer_.size());
  const size_t left = window - std::min(window, answer_.size());
  const auto prompt = prompt_.end() - std::min(left, prompt_.size());
  for (uint32_t token = 0; token < logits.size(); ++token) {
    float& logit = logits[token];
    const auto count = std::count(answer, answer_.end(), token);
    const bool in_prompt = std::count(prompt, prompt_.end(), token) > 0;
    const float penalty = params_.repetition_penalty;
    if (count > 0 || in_prompt) logit = logit > 0.0f ? logit / penalty : logit * penalty;
    if (count > 0) {
      logit -= params_.presence_penalty + params_.frequency_penalty * static_cast<float>(count);
    }
  }
  answer_.push_back(Choose(logits));
  return answer_.back();
}

uint32_t PlainSampler::Choose(const std::vector<float>& logits) const {
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
  if (params_.temperature == 0.0f) return order[0];
  if (params_.top_k > 0 && params_.top_k < order.size()) order.resize(params_.top_k);
  std::vector<double> weights;
  for (const uint32_t token : order) {
    weights.push_back(
        std::exp((double{logits[token]} - logits[order[0]]) / double{params_.temperature}));
  }
  if (params_.top_p < 1.0f) {
    const double wanted = params_.top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
    double sum = 0.0;
    size_t kept = 0;
    while (kept < weights.size() && sum < wanted) sum += weights[kept++];
    weights.resize(kept);
  }
  while (weights.back() < params_.min_p) weights.pop_back();
  double target = UniformDraw(params_.seed, answer_.size()) *
                  std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < weights.size(); ++i) {
    target -= weights[i];
    if (target < 0.0) return order[i];
  }
  return order[weights.size() - 1];
}

}  // namespace tandem::gateway
