// The outputs that an independent implementation gave for a test checkpoint (tests/data/README.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::testing {

struct ReferencePrompt {
  std::string text;
  std::vector<uint32_t> tokens;        // BOS included
  std::vector<float> logits;           // [num_logit_rows, vocab_size], of the last positions
  uint32_t num_logit_rows = 0;         // up to 16
  std::vector<uint32_t> continuation;  // greedy
  std::vector<float> margins;          // at each step of it, best logit minus the second

  // Steps of the continuation before the first whose margin is under 0.05: beyond it rounding may
  // choose another token, and everything that follows.
  size_t NumDecidedSteps() const;
};

// The same from float64 arithmetic, for some logits of one prompt.
struct ExactLogits {
  uint32_t prompt = 0;
  uint32_t stride = 0;                     // every stride-th logit
  std::vector<std::vector<float>> logits;  // of the last positions
};

struct ReferenceOutputs {
  std::vector<ReferencePrompt> prompts;
  std::vector<uint32_t> long_tokens;
  ExactLogits exact;
  std::vector<float> long_nll;  // of long_tokens[i + 1] given those before it, nats
};

// Relative error, in norm, of the logits above against exact arithmetic: they come from products in
// TF32, which rounds its inputs to 11 bits (our float32 against them: up to 1.1e-3).
inline constexpr double kReferenceError = 2e-3;

// Reads reference.json, reference.safetensors and float64.json of a checkpoint's folder.
absl::StatusOr<ReferenceOutputs> LoadReferenceOutputs(const std::string& folder);

}  // namespace tandem::testing
