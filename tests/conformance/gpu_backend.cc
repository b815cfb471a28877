#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/testing/compare.h"
#include "services/gpu_worker/stages/gpu_worker.h"
#include "tests/conformance/backend.h"

namespace tandem::conformance {

const Backend& BackendUnderTest() {
  static const Backend backend{
      .name = "gpu",
      .make_worker = []() -> absl::StatusOr<std::unique_ptr<Worker>> {
        // Subgroups of 64 lanes on a device that would have 32: TANDEM_TEST_SUBGROUP_SIZE=64.
        const char* lanes = std::getenv("TANDEM_TEST_SUBGROUP_SIZE");
        const auto size = lanes == nullptr ? 0u : static_cast<uint32_t>(std::atoi(lanes));
        TANDEM_ASSIGN_OR_RETURN(
            std::unique_ptr<gpu::GpuWorker> worker,
            gpu::GpuWorker::Create({.validation = true, .subgroup_size = size}));
        const vulkan::DeviceInfo& info = worker->device().info();
        if (size != 0 && info.subgroup_size != size) {
          return absl::InvalidArgumentError(
              absl::StrFormat("TANDEM_TEST_SUBGROUP_SIZE=%s: %s has %d to %d lanes", lanes,
                              info.name, info.min_subgroup_size, info.max_subgroup_size));
        }
        return std::unique_ptr<Worker>(std::move(worker));
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
