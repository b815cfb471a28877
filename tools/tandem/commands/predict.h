// `tandem bench --predict`: kernel_report in this program's place.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

struct PredictOptions {
  std::string chip;   // of tools/kernel_report/chip.h
  std::string model;  // a file, a folder or a synthetic name
  uint32_t max_rows = 0;
  std::string kv_type;
  std::vector<uint32_t> prompts, batches, depths;
  bool json = false;
};

// kernel_report's command line, its path first.
std::vector<std::string> PredictCommand(const PredictOptions& options, const std::string& folder);

// Becomes kernel_report, which prints the prediction and sets the exit status; returns only if that
// fails.  `folder`: where it is.  NOT_FOUND says how to get it.
absl::Status Predict(const PredictOptions& options, const std::string& folder);

}  // namespace tandem
