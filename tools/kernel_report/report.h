// The report: what the worker's own pipelines for a model become on a chip, and how long its steps
// would take there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/kernel_report/chip.h"
#include "tools/kernel_report/kernel_facts.h"
#include "tools/kernel_report/planned_model.h"
#include "tools/kernel_report/prediction.h"
#include "tools/kernel_report/validation.h"

namespace tandem::report {

struct ReportRequest {
  Chip chip;
  ModelRequest model;
  std::vector<std::string> settings;  // NAME=VALUE of docs/tuning.md, over the chip's table
  // Steps to predict; none: nothing is predicted.
  std::vector<uint32_t> prompts;
  std::vector<uint32_t> batches;
  std::vector<uint32_t> depths;
};

struct ModelReport {
  Chip chip;
  std::string model;
  std::string device;  // as the driver names it
  std::string driver;  // "Mesa 25.0.7-2+deb13u1"
  std::string tuning;  // which table chose the kernels
  uint32_t max_rows = 0;
  std::vector<KernelFacts> kernels;  // those of the model's recordings, by name
  std::vector<StepPrediction> steps;
};

// The request's model, with a context and sequences for all of its steps.  Many sequences share
// what the cache of eight would hold.
ModelRequest Widen(const ReportRequest& request);

// Loads the model into the worker over the null driver.  `radv`: RADV's library.  A process asks
// for as many as it wants, one after another.
absl::StatusOr<ModelReport> MakeReport(const ReportRequest& request, const std::string& radv);

// Predicts every measured step.  `settings`: as ReportRequest's.
absl::StatusOr<std::vector<ValidatedStep>> Validate(const Measurements& measurements,
                                                    const std::vector<std::string>& settings,
                                                    const std::string& radv);

// Disassembly of the pipelines of the last report whose name contains `part`.
std::string AssemblyOf(const std::string& part);

// Tables for people.
std::string ReportAsText(const ModelReport& report);
// One object for one report; {"reports": [...]} for several.
std::string ReportsAsJson(const std::vector<ModelReport>& reports);

// Models whose kernels are looked at on every build: four, with most formats among them.
std::vector<std::string> MainModels();
// Every size in every format.
std::vector<std::string> AllModels();

}  // namespace tandem::report
