// Attend on the emulated NPU and the rest on the Vulkan device; and all of it on the latter.
#include "services/common/base/status_macros.h"
#include "services/common/testing/paths.h"
#include "services/gpu_worker/stages/gpu_worker.h"
#include "services/npu_worker/npu_worker.h"
#include "services/npu_worker/startup.h"
#include "tests/evaluation/placements.h"

namespace tandem::evaluation {
namespace {

struct Devices {
  std::unique_ptr<npu::NpuWorker> npu;
  std::unique_ptr<gpu::GpuWorker> gpu;
};

// The NPU first: its environment is set before a driver starts threads.
absl::StatusOr<Devices> OpenDevices() {
  npu::StartupOptions options;
  options.policy = NpuPolicy::kEmulate;
  options.library_folder = BuildPath("lib/tandem");
  TANDEM_RETURN_IF_ERROR(npu::PrepareNpu(options));
  Devices devices;
  TANDEM_ASSIGN_OR_RETURN(devices.npu, npu::NpuWorker::Create(options.worker));
  TANDEM_ASSIGN_OR_RETURN(devices.gpu, gpu::GpuWorker::Create({}));
  return devices;
}

}  // namespace

std::vector<std::string> PlacementNames() { return {"Hybrid", "GpuAlone"}; }

absl::StatusOr<Placement> MakePlacement(const std::string& name) {
  static const auto devices = OpenDevices();
  if (!devices.ok()) return devices.status();
  if (name == "GpuAlone") return Placement{{devices->gpu.get()}, {.npu = NpuPolicy::kOff}};
  return Placement{{devices->gpu.get(), devices->npu.get()}, {.npu = NpuPolicy::kEmulate}};
}

}  // namespace tandem::evaluation
