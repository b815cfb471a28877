// Greedy decoding of many prompts at once over a plan, without a gateway.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/testing/plan_runner.h"

namespace tandem::testing {

struct GreedyOptions {
  uint32_t max_tokens = 64;    // per prompt
  uint32_t max_sequences = 0;  // decoded together; 0: the runner's limit
  uint32_t chunk = 0;          // rows of a prompt in one step; 0: as many as fit
  bool stop_at_stop_tokens = true;
};

// The continuation of each prompt, its stop token included.  Rows of sequences that decode come
// first in a step, then chunks of prompts up to the runner's max_rows.
// DATA_LOSS: the head reported logits that are no numbers.
absl::StatusOr<std::vector<std::vector<uint32_t>>> DecodeGreedily(
    PlanRunner& runner, const std::vector<std::vector<uint32_t>>& prompts,
    const GreedyOptions& options);

// Negative log-likelihood of tokens[i + 1] given those before it, [tokens.size() - 1], nats.
absl::StatusOr<std::vector<float>> NegativeLogLikelihoods(PlanRunner& runner,
                                                          std::span<const uint32_t> tokens);

// Logits of the last `num_positions` of `tokens`, [num_positions, vocab_size].
absl::StatusOr<std::vector<float>> LastLogits(PlanRunner& runner, std::span<const uint32_t> tokens,
                                              uint32_t num_positions);

}  // namespace tandem::testing
