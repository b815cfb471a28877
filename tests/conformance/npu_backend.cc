#include "services/common/base/status_macros.h"
#include "services/common/testing/compare.h"
#include "services/npu_worker/npu_worker.h"
#include "services/npu_worker/startup.h"
#include "tests/conformance/backend.h"

namespace tandem::conformance {
namespace {

absl::StatusOr<std::unique_ptr<Worker>> MakeEmulatedNpu() {
  npu::StartupOptions options;
  options.policy = NpuPolicy::kEmulate;
  options.library_folder = TANDEM_BINARY_DIR "/lib/tandem";
  TANDEM_RETURN_IF_ERROR(npu::PrepareNpu(options));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, npu::NpuWorker::Create(options.worker));
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
