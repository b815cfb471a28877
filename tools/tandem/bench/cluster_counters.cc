#include "tools/tandem/bench/cluster_counters.h"

#include <algorithm>
#include <cmath>

#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/plan/stage.h"

namespace tandem {
namespace {

constexpr absl::Duration kWorkerTimeout = absl::Seconds(2);
constexpr absl::Duration kMeasureTimeout = absl::Seconds(60);

constexpr absl::Duration kStepWait = absl::Seconds(30);

// The scheduler counts a step when it begins; its last segment, which has Head, when it has ended.
uint64_t StepsEnded(const v1::GetStatusResponse& status) {
  if (status.segments().empty()) return status.scheduler().steps();
  uint64_t ended = 0;
  for (const v1::SegmentStatus& segment : status.segments()) {
    if (segment.stages().ends_with("Head")) ended += segment.calls();
  }
  return ended;
}

BenchWorkerTime& WorkerOf(std::vector<BenchWorkerTime>& workers, const std::string& name) {
  const auto it = std::find_if(workers.begin(), workers.end(),
                               [&](const BenchWorkerTime& w) { return w.worker == name; });
  return it != workers.end() ? *it : workers.emplace_back(BenchWorkerTime{.worker = name});
}

}  // namespace

bool RunsSegments(const v1::GetStatusResponse& status, const std::string& worker) {
  return std::any_of(status.segments().begin(), status.segments().end(),
                     [&](const v1::SegmentStatus& segment) { return segment.worker() == worker; });
}

void AddCounts(const ClusterCounts& before, const ClusterCounts& after, double scale,
               BenchResult& result) {
  const auto scaled = [scale](uint64_t count) {
    return static_cast<uint64_t>(std::llround(scale * static_cast<double>(count)));
  };
  const uint64_t steps = after.steps - before.steps;
  result.steps += scaled(steps);
  // The scheduler's counts are of steps that began: their share is that of those that ended.
  const uint64_t begun = after.steps_begun - before.steps_begun;
  if (begun > 0) {
    const double queued = static_cast<double>(after.steps_queued - before.steps_queued);
    result.steps_queued += static_cast<uint64_t>(
        std::llround(scale * static_cast<double>(steps) * queued / static_cast<double>(begun)));
  }
  result.preemptions += after.preemptions - before.preemptions;
  result.guesses_verified += scaled(after.guesses_verified - before.guesses_verified);
  result.guesses_accepted += scaled(after.guesses_accepted - before.guesses_accepted);
  for (const BenchWorkerTime& now : after.workers) {
    const auto then = std::find_if(before.workers.begin(), before.workers.end(),
                                   [&](const auto& w) { return w.worker == now.worker; });
    if (then == before.workers.end()) continue;
    BenchWorkerTime& sum = WorkerOf(result.workers, now.worker);
    sum.calls += scaled(now.calls - then->calls);
    sum.device_seconds += scale * (now.device_seconds - then->device_seconds);
    sum.round_trip_seconds += scale * (now.round_trip_seconds - then->round_trip_seconds);
    for (const auto& [stage, seconds] : now.stages) {
      const auto earlier = then->stages.find(stage);
      const double spent = seconds - (earlier == then->stages.end() ? 0 : earlier->second);
      if (spent > 0) sum.stages[stage] += scale * spent;
    }
  }
}

ClusterCounters::ClusterCounters(GenerationStub& stub, const v1::GetStatusResponse& status)
    : stub_(stub) {
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (!RunsSegments(status, worker.name())) continue;
    const auto target = ParseWorkerTarget(worker.target());
    if (worker.target().empty() || !target.ok() || target->remote) continue;
    workers_[worker.name()] = std::make_unique<WorkerClient>(worker.target());
  }
}

absl::StatusOr<ClusterCounts> ClusterCounters::Read() {
  const absl::Time begin = absl::Now();
  TANDEM_ASSIGN_OR_RETURN(const auto status, FetchStatus(stub_));
  ClusterCounts counts = Count(status);
  counts.earliest = begin;
  counts.latest = absl::Now();
  return counts;
}

absl::StatusOr<ClusterCounts> ClusterCounters::ReadAtStepEnd() {
  const absl::Time begin = absl::Now();
  absl::Time asked = begin, earliest = begin;
  TANDEM_ASSIGN_OR_RETURN(auto status, FetchStatus(stub_));
  const uint64_t steps = StepsEnded(status);
  while (StepsEnded(status) == steps && status.scheduler().running() > 0 &&
         absl::Now() - begin < kStepWait) {
    // Often enough for short steps; seldom enough not to slow down long ones.
    absl::SleepFor(std::min((absl::Now() - begin) / 32, absl::Milliseconds(5)));
    earliest = asked;  // the step had not ended then
    asked = absl::Now();
    TANDEM_ASSIGN_OR_RETURN(status, FetchStatus(stub_));
  }
  const absl::Time latest = absl::Now();
  ClusterCounts counts = Count(status);
  counts.earliest = earliest;
  counts.latest = latest;
  return counts;
}

ClusterCounts ClusterCounters::Count(const v1::GetStatusResponse& status) {
  ClusterCounts counts;
  counts.steps = StepsEnded(status);
  counts.steps_begun = status.scheduler().steps();
  counts.steps_queued = status.scheduler().steps_queued();
  counts.step_bytes = status.scheduler().step_bytes();
  counts.preemptions = status.scheduler().preemptions();
  for (const v1::DrafterStatus& drafter : status.scheduler().drafters()) {
    counts.guesses_verified += drafter.drafted_tokens();
    counts.guesses_accepted += drafter.accepted_tokens();
  }
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (RunsSegments(status, worker.name())) WorkerOf(counts.workers, worker.name());
  }
  for (const v1::SegmentStatus& segment : status.segments()) {
    BenchWorkerTime& worker = WorkerOf(counts.workers, segment.worker());
    worker.calls += segment.calls();
    worker.device_seconds += segment.device_seconds();
    worker.round_trip_seconds += segment.round_trip_seconds();
  }
  for (auto& [name, client] : workers_) {
    const auto own = client->GetStatus(kWorkerTimeout);
    if (!own.ok()) continue;
    for (const worker::v1::StageTime& time : own->busy()) {
      if (time.kind() == worker::v1::STAGE_KIND_UNSPECIFIED) continue;
      const auto kind = static_cast<StageKind>(time.kind() - 1);
      WorkerOf(counts.workers, name).stages[std::string(StageKindName(kind))] =
          1e-9 * static_cast<double>(time.device_ns());
    }
  }
  return counts;
}

std::vector<BenchDevice> ClusterCounters::Devices(const v1::GetStatusResponse& status) {
  std::vector<BenchDevice> devices;
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (!RunsSegments(status, worker.name())) continue;
    BenchDevice device{.worker = worker.name(),
                       .device = worker.device(),
                       .kind = worker.kind(),
                       .emulated = worker.emulated()};
    const auto client = workers_.find(worker.name());
    const auto ceilings =
        client == workers_.end()
            ? absl::UnavailableError(worker.target().empty() ? "the gateway knows no address of it"
                                                             : "it is on another host")
            : client->second->MeasureCeilings(kMeasureTimeout);
    if (ceilings.ok()) {
      device.read_bytes_per_second = ceilings->read_bytes_per_second();
      device.fma_flops_per_second = ceilings->fma_flops_per_second();
      if (ceilings->matrix_flops_per_second() > 0) {
        device.matrix_flops_per_second = ceilings->matrix_flops_per_second();
      }
    } else {
      device.not_measured = std::string(ceilings.status().message());
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace tandem
