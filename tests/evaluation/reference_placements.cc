// The reference arithmetic, Attend on a second worker (which changes no bit).
#include "services/common/reference/reference_worker.h"
#include "tests/evaluation/placements.h"

namespace tandem::evaluation {

std::vector<std::string> PlacementNames() { return {"Reference"}; }

absl::StatusOr<Placement> MakePlacement(const std::string&) {
  static reference::ReferenceWorker gpu({.name = "gpu0", .num_threads = 2});
  static reference::ReferenceWorker npu({.name = "npu0",
                                         .kind = DeviceKind::kNpu,
                                         .emulated = true,
                                         .stages = {StageKind::kAttend},
                                         .num_threads = 2});
  return Placement{{&gpu, &npu}, {.npu = NpuPolicy::kEmulate}};
}

}  // namespace tandem::evaluation
