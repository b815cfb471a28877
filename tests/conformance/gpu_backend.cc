#include "services/common/testing/compare.h"
#include "services/gpu_worker/stages/gpu_worker.h"
#include "tests/conformance/backend.h"

namespace tandem::conformance {

const Backend& BackendUnderTest() {
  static const Backend backend{
      .name = "gpu",
      .make_worker = []() -> absl::StatusOr<std::unique_ptr<Worker>> {
        return gpu::GpuWorker::Create({.validation = true});
      },
      .epsilon = testing::kEpsilonF16,
      .quantised_epsilon =
          [](const Worker& worker) {
            // Half a step of a block's 127.
            const bool bytes =
                static_cast<const gpu::GpuWorker&>(worker).tuning().matvec_max_rows > 0;
            return bytes ? 1.0 / 254 : testing::kEpsilonF16;
          },
  };
  return backend;
}

}  // namespace tandem::conformance
