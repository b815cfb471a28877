// How far predictions are from measurements: the same model of a chip, with the figures of one that
// was measured.
//
//   { "chip": "h200", "source": "where they were measured", "median_error": 0.2,
//     "steps": [ { "model": "synthetic:...", "max_rows": 128, "batch": 8, "depth": 0,
//                  "tokens_per_second": 975 },
//                { "model": "synthetic:...", "max_rows": 2048, "prompt": 2048, ... } ] }
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/kernel_report/prediction.h"

namespace tandem::report {

// A prompt, or one token for each of `batch` sequences with `depth` positions before it.
struct MeasuredStep {
  std::string model;
  uint32_t max_rows = 0;
  uint32_t prompt = 0;  // tokens; 0: no prompt
  uint32_t batch = 1;
  uint32_t depth = 0;
  double tokens_per_second = 0;

  // As StepPrediction names it.
  std::string Name() const;
};

struct Measurements {
  std::string chip;
  std::string source;
  double median_error = 0;  // that the predictions may have, of the measured figure
  std::vector<MeasuredStep> steps;
};
// INVALID_ARGUMENT: `text` is no such file.  `name`: for messages.
absl::StatusOr<Measurements> ParseMeasurements(const std::string& text, const std::string& name);

struct ValidatedStep {
  MeasuredStep measured;
  StepPrediction predicted;
  // 0.1: the prediction is 10% too fast.
  double Error() const { return predicted.tokens_per_second() / measured.tokens_per_second - 1; }
};

struct ErrorSummary {
  double median = 0;   // of the errors without their signs
  double largest = 0;  // likewise
  double bias = 0;     // median of the errors with their signs
};
// REQUIRES a step.
ErrorSummary Summarise(const std::vector<ValidatedStep>& steps);

// A table for docs/performance.md, a row a step, and a line with the summary.
std::string ValidationAsMarkdown(const Measurements& measurements,
                                 const std::vector<ValidatedStep>& steps);
std::string ValidationAsJson(const Measurements& measurements,
                             const std::vector<ValidatedStep>& steps);

}  // namespace tandem::report
