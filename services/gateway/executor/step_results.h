// What the last steps' heads left in the exchange region, as the gateway believes it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "services/common/worker/step_batch.h"
#include "services/common/worker/worker.h"

namespace tandem::gateway {

// Candidates and guesses are copied out of the exchange region and then checked: workers map the
// region too, and nothing they write later changes what was checked.  Single-thread.
class StepResults {
 public:
  // Forgets everything; there is room for `num_lanes` steps within `limits` from now on.
  void Reset(uint32_t num_lanes, const StepLimits& limits);

  // Takes the results of a step that has run in `lane`.  `header`: the step as it was written.
  // `with_guesses`: the worker feeds the next step from its guesses, so that they are tokens.
  // INTERNAL names the output and the value: counts above what was asked for, tokens outside the
  // vocabulary, logits that are not finite, or not descending, or above their log-sum-exp, although
  // the head counted none that is not finite.  REQUIRES a header within the limits.
  absl::Status Take(const Exchange& exchange, uint32_t lane, const StepHeader& header,
                    bool with_guesses);

  // Of the step taken last in `lane`, o < its num_outputs.
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
