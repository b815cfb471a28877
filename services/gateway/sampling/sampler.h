// Chooses the next token from the head's results.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/worker/step_batch.h"

namespace tandem::gateway {

struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy
  uint32_t top_k = 64;       // 0: all
  float top_p = 0.95f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint64_t seed = 0;
  std::map<uint32_t, float> logit_bias;

  // INVALID_ARGUMENT naming the parameter, its value and its range (NaN is out of every range).
  absl::Status Validate(uint32_t vocab_size) const;
};

struct Alternative {
  uint32_t token = 0;
  float logprob = 0.0f;
};

struct Decision {
  uint32_t token = 0;
  float logprob = 0.0f;                   // before penalties and temperature
  std::vector<Alternative> alternatives;  // most probable first; as many as were asked for
};

// State of one request.  The n-th draw depends on the seed and n alone (counter-based generator),
// so a resumed or re-run request chooses the same tokens whatever its neighbours.
// Single-thread.
class Sampler {
 public:
  // `prompt`: counted by the repetition penalty only.
  Sampler(SamplingParams params, std::span<const uint32_t> prompt, uint32_t num_alternatives);

  // Whether the head's candidates cannot decide the next token exactly, so that all logits must be
  // asked for: no truncation below kMaxCandidates, penalties or biases that can raise a token,
  // more alternatives than candidates.
  bool NeedsLogits() const;
  // Candidates worth asking for (1 for greedy without penalties or alternatives).
  uint32_t NumCandidates() const;

  // Decides draw number `num_decided()`, and counts the token.  `logits` is empty or
  // [vocab_size]; REQUIRES it is not empty when NeedsLogits().  DATA_LOSS: the head reported
  // logits that are not finite.
  absl::StatusOr<Decision> Sample(const OutputResult& result, std::span<const float> logits);
  uint64_t num_decided() const { return num_decided_; }

 private:
  SamplingParams params_;
  uint32_t num_alternatives_;
  uint64_t num_decided_ = 0;
  std::map<uint32_t, uint32_t> answer_counts_;
  std::map<uint32_t, bool> seen_;
};

}  // namespace tandem::gateway
