#include "services/common/plan/alternatives.h"

#include <algorithm>
#include <utility>

#include "services/common/base/status_macros.h"

namespace tandem {
namespace {

// Whether the same workers run the same stages.
bool SamePlacement(const Plan& a, const Plan& b) {
  return std::ranges::equal(a.segments, b.segments, [&](const Segment& x, const Segment& y) {
    return x.first_ordinal == y.first_ordinal && x.last_ordinal == y.last_ordinal &&
           a.workers[x.worker].name == b.workers[y.worker].name;
  });
}

bool HasNpu(const Plan& plan) {
  return std::ranges::any_of(plan.workers, [](const WorkerDescription& worker) {
    return worker.kind == DeviceKind::kNpu;
  });
}

}  // namespace

absl::StatusOr<std::vector<Plan>> MakeAlternatives(const ModelConfig& config,
                                                   const std::vector<DType>& weight_dtypes,
                                                   const std::vector<WorkerDescription>& workers,
                                                   const PlacementPolicy& policy) {
  TANDEM_ASSIGN_OR_RETURN(Plan first, MakePlan(config, weight_dtypes, workers, policy));
  std::vector<Plan> plans;
  plans.push_back(std::move(first));
  if (policy.npu != NpuPolicy::kAuto || !HasNpu(plans[0])) return plans;
  PlacementPolicy out_too = policy;
  out_too.out_on_npu = true;
  PlacementPolicy gpu_alone = policy;
  gpu_alone.npu = NpuPolicy::kOff;
  gpu_alone.out_on_npu = false;
  for (const PlacementPolicy& other : {out_too, gpu_alone}) {
    auto plan = MakePlan(config, weight_dtypes, workers, other);
    if (!plan.ok()) continue;  // no GPU that attends
    const bool known = std::ranges::any_of(
        plans, [&plan](const Plan& made) { return SamePlacement(made, *plan); });
    if (!known) plans.push_back(*std::move(plan));
  }
  if (!config.vision.has_value()) return plans;
  const auto blind = [](const Plan& plan) { return !plan.why_no_pictures().empty(); };
  if (!std::ranges::all_of(plans, blind)) std::erase_if(plans, blind);
  return plans;
}

}  // namespace tandem
