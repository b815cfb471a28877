#include "services/common/base/status_macros.h"
#include "services/common/testing/compare.h"
#include "services/npu_worker/worker_test_support.h"
#include "tests/conformance/backend.h"

namespace tandem::conformance {
namespace {

absl::StatusOr<std::unique_ptr<Worker>> MakeEmulatedNpu() {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, npu::MakeEmulatedWorker());
  return worker;
}

}  // namespace

const Backend& BackendUnderTest() {
  static const Backend backend{
      .name = "npu",
      .make_worker = MakeEmulatedNpu,
      .epsilon = testing::kEpsilonF16,
  };
  return backend;
}

}  // namespace tandem::conformance
