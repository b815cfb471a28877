#include "services/common/plan/port_formats.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace {

constexpr PortMask kQkv = Port::kQ | Port::kK | Port::kV;

// Whether Attend of the segment takes q, k and v from another worker, or passes attention on.
bool AttendCrosses(const Segment& segment) {
  return (segment.inputs & kQkv) != 0 || Has(segment.outputs, Port::kAttention);
}
// Whether its Qkv passes q, k and v on, or its Out takes attention.
bool MatricesCross(const Segment& segment) {
  return (segment.outputs & kQkv) != 0 || Has(segment.inputs, Port::kAttention);
}

std::vector<DType> OrFloat16(const std::vector<DType>& dtypes) {
  return dtypes.empty() ? std::vector<DType>{DType::kF16} : dtypes;
}

absl::Status CheckStages(const std::string& worker, const char* stages,
                         const std::vector<DType>& listed, DType wanted) {
  const std::vector<DType> dtypes = OrFloat16(listed);
  if (std::ranges::find(dtypes, wanted) != dtypes.end()) return absl::OkStatus();
  std::vector<std::string> names;
  for (const DType dtype : dtypes) names.emplace_back(Traits(dtype).name);
  return absl::FailedPreconditionError(absl::StrFormat("%s: ports of %s are %s, the plan has %s",
                                                       worker, stages, absl::StrJoin(names, " or "),
                                                       std::string(Traits(wanted).name)));
}

}  // namespace

absl::Status CheckPortDType(const WorkerDescription& worker, std::span<const Segment> segments,
                            DType dtype) {
  for (const Segment& segment : segments) {
    absl::Status status;
    if (AttendCrosses(segment)) {
      status = CheckStages(worker.name, "Attend", worker.attend_port_dtypes, dtype);
    }
    if (status.ok() && MatricesCross(segment)) {
      status = CheckStages(worker.name, "Qkv and Out", worker.matrix_port_dtypes, dtype);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

DType ChoosePortDType(const Plan& plan) {
  const auto attends = std::ranges::find_if(plan.segments, AttendCrosses);
  if (attends == plan.segments.end()) return DType::kF16;
  for (const DType dtype : plan.workers[attends->worker].attend_port_dtypes) {
    const bool all_have = std::ranges::all_of(plan.segments, [&](const Segment& segment) {
      return CheckPortDType(plan.workers[segment.worker], {&segment, 1}, dtype).ok();
    });
    if (all_have) return dtype;
  }
  return DType::kF16;
}

}  // namespace tandem
