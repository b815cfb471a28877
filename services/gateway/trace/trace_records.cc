#include "services/gateway/trace/trace_records.h"

#include <algorithm>
#include <utility>

namespace tandem::gateway {
namespace {

// Every plan covers all stages of its model.
uint32_t NumLayers(const Plan& plan) {
  return plan.segments.empty() ? 0 : (plan.segments.back().last_ordinal - 1) / 4;
}

// The kinds of stage in a segment, in their order.
std::string KindsOf(const Segment& segment, uint32_t num_layers) {
  std::string kinds;
  std::array<bool, kNumStageKinds> seen = {};
  for (uint32_t s = segment.first_ordinal; s <= segment.last_ordinal; ++s) {
    const StageKind kind = StageAt(s, num_layers).kind;
    if (std::exchange(seen[static_cast<size_t>(kind)], true)) continue;
    if (!kinds.empty()) kinds.push_back('+');
    kinds.append(StageKindName(kind));
  }
  return kinds;
}

}  // namespace

TracedPlan::TracedPlan(const Plan& plan) {
  for (const WorkerDescription& worker : plan.workers) {
    workers.push_back({worker.name, worker.device, worker.kind == DeviceKind::kNpu ? "npu" : "gpu",
                       worker.emulated});
  }
  const uint32_t num_layers = NumLayers(plan);
  for (const tandem::Segment& segment : plan.segments) {
    segments.push_back({segment.worker, DescribeSegment(segment, num_layers),
                        KindsOf(segment, num_layers), segment.first_ordinal, segment.last_ordinal});
  }
}

bool TracedPlan::Describes(const Plan& plan) const {
  return std::equal(workers.begin(), workers.end(), plan.workers.begin(), plan.workers.end(),
                    [](const Worker& mine, const WorkerDescription& theirs) {
                      return mine.name == theirs.name && mine.device == theirs.device;
                    }) &&
         std::equal(segments.begin(), segments.end(), plan.segments.begin(), plan.segments.end(),
                    [](const Segment& mine, const tandem::Segment& theirs) {
                      return mine.worker == theirs.worker &&
                             mine.first_ordinal == theirs.first_ordinal &&
                             mine.last_ordinal == theirs.last_ordinal;
                    });
}

int TracedSegment::num_stages() const {
  return static_cast<int>(
      std::count_if(stage_ns.begin(), stage_ns.end(), [](uint64_t ns) { return ns > 0; }));
}

size_t TracedStep::num_bytes() const {
  return sizeof(*this) + shares.capacity() * sizeof(StepShare) +
         segments.capacity() * sizeof(TracedSegment) + state.capacity();
}

}  // namespace tandem::gateway
