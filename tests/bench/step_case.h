// The cases of gpu_step_bench as plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/testing/plan_runner.h"
#include "services/common/weights/weight_set.h"

namespace tandem::bench {

// "d8@4096": 8 sequences decode at depth 4096.  "d8x4": each has 4 rows, as one that verifies 3 guesses.
// "p2048": a prompt of 2048.
struct StepCase {
  std::string name;
  bool is_prompt = false;
  uint32_t sequences = 1;      // decoding; 1 for a prompt
  uint32_t chain = 1;          // rows of a decoding sequence in a step, each with an output
  uint32_t prompt_tokens = 0;  // of a prompt
  uint32_t depth = 0;          // positions each sequence holds before

  // Rows of a step, at most `max_rows`.
  uint32_t RowsPerStep(uint32_t max_rows) const;
  // Steps of one measurement: `tokens` of a decoding one.
  uint32_t NumSteps(uint32_t max_rows, uint32_t tokens) const;
  uint32_t Outputs() const { return is_prompt ? 1 : sequences * chain; }  // of a step, at most
  // Positions a sequence ends with, at most.
  uint32_t EndLength(uint32_t tokens) const;
};

// Cases separated by commas.  INVALID_ARGUMENT quotes the wrong one.
absl::StatusOr<std::vector<StepCase>> ParseCases(const std::string& text);

// Limits under which every case runs, with no more KV than the largest needs.
testing::RunLimits LimitsFor(const ModelConfig& config, const std::vector<StepCase>& cases,
                             uint32_t max_rows, uint32_t tokens);

// The least that one step moves and computes, averaged over a measurement's steps.
struct StepWork {
  double weight_bytes = 0;  // every matrix once; of the embedding only as the head
  double kv_bytes = 0;      // keys and values that attention sees, read once a sequence
  double flops = 0;         // of products: 2 x elements x rows, in the head and the last layer's
                            // Ffn for outputs alone
  double bytes() const { return weight_bytes + kv_bytes; }
};
StepWork WorkOf(const StepCase& step_case, const WeightSet& weights, const StepLimits& limits,
                uint32_t tokens);

}  // namespace tandem::bench
