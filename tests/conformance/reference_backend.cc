#include "services/common/reference/reference_worker.h"
#include "services/common/testing/compare.h"
#include "tests/conformance/backend.h"

namespace tandem::conformance {

const Backend& BackendUnderTest() {
  static const Backend backend{
      .name = "reference",
      .make_worker = []() -> absl::StatusOr<std::unique_ptr<Worker>> {
        return std::make_unique<reference::ReferenceWorker>();
      },
      .epsilon = testing::kEpsilonF16,
  };
  return backend;
}

}  // namespace tandem::conformance
