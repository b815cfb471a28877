// Results of the last steps' heads, copied from the exchange region and checked.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "services/common/step/step_batch.h"
#include "services/common/worker/worker.h"

namespace tandem::gateway {

// Candidates and speculative tokens are copied before they are checked: workers map the region too,
// so they could change it later.  Single-thread.
class StepResults {
 public:
  // Drops all results; makes room for `num_lanes` steps within `limits`.
  void Reset(uint32_t num_lanes, const StepLimits& limits);

  // Takes the results of a step that has run in `lane`.  `header`: the step as it was written.
  // `with_guesses`: the worker feeds the next step with speculative tokens, which are checked too.
  // INTERNAL names the output and the value: more candidates than requested, tokens outside the
  // vocabulary, logits that are not descending or above their log-sum-exp, or logits that are not
  // finite although the head reported none.  REQUIRES a header within the limits.
  absl::Status Take(const Exchange& exchange, uint32_t lane, const StepHeader& header,
                    bool with_guesses);

  // Results of the last step in `lane`, o < its num_outputs.
  const OutputResult& Output(uint32_t lane, uint32_t o) const { return lanes_[lane].outputs[o]; }
  uint32_t Guess(uint32_t lane, uint32_t o) const { return lanes_[lane].guesses[o]; }

 private:
  struct Lane {
    std::vector<OutputResult> outputs;
    std::vector<uint32_t> guesses;
  };
  StepLimits limits_;
  std::vector<Lane> lanes_;
};

}  // namespace tandem::gateway
