// Speculation: how a device chooses a request's tokens before its Sampler decides them.
#pragma once

#include <cstdint>
#include <optional>

#include "services/common/step/step_batch.h"
#include "services/gateway/sampling/sampler.h"

namespace tandem::gateway {

// The part of a Sampler that a device can compute: no penalty, no bias, few enough candidates.
class GuessRule {
 public:
  // nullopt for parameters that need more than candidates to decide the next token.
  static std::optional<GuessRule> For(const SamplingParams& params);

  // Whether the speculative token is the best candidate, so that no DrawEntry is needed.
  bool greedy() const { return draw_.temperature == 0.0f; }
  // The DrawEntry for token number `n` of the answer, with the Sampler's random number for it.
  // REQUIRES not greedy().
  DrawEntry At(uint64_t n) const;

 private:
  DrawEntry draw_;  // all but `uniform`
  uint64_t seed_ = 0;
};

}  // namespace tandem::gateway
