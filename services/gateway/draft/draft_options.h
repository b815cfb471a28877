// Where a draft model runs: its executor's options, from the model's.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/gateway/executor/executor.h"

namespace tandem::gateway {

struct DraftModelPlace {
  std::string model_name;  // as the loader lists it
  // "gpu": on a GPU alone; "npu": its attention on an NPU; "emulate": on an emulated one; else a
  // worker's name: on that one alone.
  std::string device = "gpu";
};

// INVALID_ARGUMENT: "emulate", and the model asks for an NPU that is not emulated.
absl::StatusOr<ExecutorOptions> DraftExecutorOptions(const ExecutorOptions& model,
                                                     const DraftModelPlace& place);

}  // namespace tandem::gateway
