// Has several workers load their parts of a plan at the same time.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/rpc/worker_client.h"
#include "services/gateway/executor/executor.h"

namespace tandem::gateway {

struct WorkerLoad {
  std::string name;
  WorkerClient* client = nullptr;  // Borrowed for the call.
  worker::v1::LoadPlanRequest request;
  absl::StatusOr<worker::v1::LoadPlanReport> report = absl::UnknownError("not loaded");
};

// Fills every report, and passes the mean fraction to `progress`.  Returns the worst error, with
// the worker's name: permanent errors before UNAVAILABLE.
absl::Status LoadInParallel(std::vector<WorkerLoad>& loads, absl::Duration deadline,
                            const Executor::Progress& progress);

}  // namespace tandem::gateway
