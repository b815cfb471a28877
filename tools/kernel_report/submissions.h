// Steps on a chip's emulated clock.  The worker measures its stages and cuts its steps into
// submissions as it does on a device (services/gpu_worker/stages/stage_times.h).  The null driver's
// clock gives each dispatch the time that prediction.h predicts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/kernel_report/report.h"

namespace tandem::report {

struct SubmittedStep {
  std::string name;  // "512 rows @1536", "8 sequences @4096"
  uint32_t submissions = 0;
  double longest = 0;  // seconds, of one submission
  double seconds = 0;  // of all of them
};

struct SubmissionReport {
  std::string model;
  std::string chip;            // its title
  uint32_t at_load = 0;        // submissions while the model was loaded
  double longest_at_load = 0;  // seconds
  std::vector<SubmittedStep> steps;

  double Longest() const;  // of all
};

// Loads the model and runs the request's prompts, in chunks of the step's rows, and its batches at
// each depth.  `longest`: GpuWorkerOptions::longest_submission.  `radv`: RADV's library.
absl::StatusOr<SubmissionReport> TimeSubmissions(const ReportRequest& request,
                                                 absl::Duration longest, const std::string& radv);

std::string SubmissionsAsText(const SubmissionReport& report);

}  // namespace tandem::report
