// The sampler's rules over the whole vocabulary, in the plainest way, to compare with.
#pragma once

#include <cstdint>
#include <vector>

#include "services/gateway/sampling/sampler.h"

namespace tandem::gateway {

// What a head with these logits reports.
OutputResult MakeResult(const std::vector<float>& logits, uint32_t num_candidates);

class PlainSampler {
 public:
  PlainSampler(SamplingParams params, std::vector<uint32_t> prompt);

  // The next token; it is counted.
  uint32_t Sample(std::vector<float> logits);

 private:
  uint32_t Choose(const std::vector<float>& logits) const;

  SamplingParams params_;
  std::vector<uint32_t> prompt_;
  std::vector<uint32_t> answer_;
};

}  // namespace tandem::gateway
