// How a device may guess a request's tokens before its Sampler decides them.
#pragma once

#include <cstdint>
#include <optional>

#include "services/common/worker/step_batch.h"
#include "services/gateway/sampling/sampler.h"

namespace tandem::gateway {

// The part of a Sampler that a device can do: no penalty, no bias, few enough candidates.
class GuessRule {
 public:
  // None for parameters under which candidates alone do not decide the next token.
  static std::optional<GuessRule> For(const SamplingParams& params);

  // Whether the best candidate is the guess, so that no DrawEntry is needed.
  bool greedy() const { return draw_.temperature == 0.0f; }
  // What guesses the answer's token number `n`, from the number that the Sampler draws there.
  // REQUIRES not greedy().
  DrawEntry At(uint64_t n) const;

 private:
  DrawEntry draw_;  // all but `uniform`
  uint64_t seed_ = 0;
};

}  // namespace tandem::gateway
