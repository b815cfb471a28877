#include "services/gateway/sampling/guess_rule.h"

#include <algorithm>
#include <limits>

#include "services/gateway/sampling/random.h"

namespace tandem::gateway {

std::optional<GuessRule> GuessRule::For(const SamplingParams& params) {
  const bool biased = std::any_of(params.logit_bias.begin(), params.logit_bias.end(),
                                  [](const auto& bias) { return bias.second != 0.0f; });
  if (biased || params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
      params.frequency_penalty != 0.0f) {
    return std::nullopt;
  }
  GuessRule rule;
  rule.draw_.temperature = params.temperature;
  rule.seed_ = params.seed;
  if (rule.greedy()) return rule;
  if (params.top_k == 0 || params.top_k > kMaxCandidates) return std::nullopt;
  // Devices take smaller values for zero.
  if (params.temperature < std::numeric_limits<float>::min()) return std::nullopt;
  rule.draw_.top_k = params.top_k;
  rule.draw_.top_p = params.top_p;
  rule.draw_.min_p = params.min_p;
  return rule;
}

DrawEntry GuessRule::At(uint64_t n) const {
  DrawEntry draw = draw_;
  draw.uniform = static_cast<float>(UniformDraw(seed_, n));
  return draw;
}

}  // namespace tandem::gateway
