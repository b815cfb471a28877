// All stages on the Vulkan device that a worker would choose.
#include "services/gpu_worker/stages/gpu_worker.h"
#include "tests/evaluation/placements.h"

namespace tandem::evaluation {

std::vector<std::string> PlacementNames() { return {"Gpu"}; }

absl::StatusOr<Placement> MakePlacement(const std::string&) {
  static const auto gpu = gpu::GpuWorker::Create({});
  if (!gpu.ok()) return gpu.status();
  return Placement{{gpu->get()}, {.npu = NpuPolicy::kOff}};
}

}  // namespace tandem::evaluation
