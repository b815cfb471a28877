// The worker under test of a conformance test executable.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/worker/worker.h"

namespace tandem::conformance {

struct Backend {
  std::string name;
  // NOT_FOUND: this machine has no such device, and the suite is skipped; any other error fails.
  absl::StatusOr<std::unique_ptr<Worker>> (*make_worker)();
  // Unit roundoff of the narrowest format to which activations or weights are rounded.
  double epsilon = 0.0;
  // The same for weights in blocks of integers, whose kernels may round activations like them;
  // nullopt: no difference.
  double (*quantised_epsilon)(const Worker& worker) = nullptr;
};

// Defined once in each executable.
const Backend& BackendUnderTest();

}  // namespace tandem::conformance
