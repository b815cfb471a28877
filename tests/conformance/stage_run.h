// Stages one at a time, all their tensors through the exchange region, compared with the reference.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "services/common/reference/reference_model.h"
#include "tests/conformance/worker_suite.h"

namespace tandem::conformance {

// The reference's activations after every stage of one sequence of `num_rows` random tokens.
struct StageCapture {
  StageCapture(const WeightSet& weights, uint32_t num_rows);

  std::vector<uint32_t> tokens;                      // [num_rows]
  std::map<uint32_t, reference::Activations> after;  // by stage ordinal
  std::vector<float> logits;                         // [num_rows, vocab_size]
};

struct StageBounds {
  double epsilon = 0.0;  // of a rounding
  // A number may be off by this many times what NormBound allows the mean square of its row;
  // 0: only the row as a whole is bounded.  One wrong number of a wide row is seen by this alone.
  double most_deviations = 0.0;
};

// Runs every segment of `runner`, each of one stage, for the first n rows of the capture, for each n
// of `row_counts`; a stage's inputs are the reference's.  Failures are the current test's.
void CheckStages(PlanRunner& runner, const StageCapture& capture,
                 std::span<const uint32_t> row_counts, const StageBounds& bounds);

}  // namespace tandem::conformance
