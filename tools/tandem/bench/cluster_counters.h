// A cluster's counters, and the difference of two readings.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/rpc/worker_client.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/bench/bench_report.h"

namespace tandem {

struct ClusterCounts {
  uint64_t steps = 0;  // that have ended
  // The last of them ended between these times.
  absl::Time earliest = absl::InfinitePast(), latest = absl::InfinitePast();
  uint64_t steps_begun = 0;
  uint64_t steps_queued = 0;  // of steps_begun
  uint64_t step_bytes = 0;
  uint64_t preemptions = 0;
  uint64_t guesses_verified = 0;         // of drafters
  uint64_t guesses_accepted = 0;         // of them
  std::vector<BenchWorkerTime> workers;  // in the order of the status
};

// Whether the plan has a segment on the worker.  Workers without one, such as an NPU that the
// machine lacks, are not measured.
bool RunsSegments(const v1::GetStatusResponse& status, const std::string& worker);

// Adds the difference of `after` and `before`, times `scale`.
void AddCounts(const ClusterCounts& before, const ClusterCounts& after, double scale,
               BenchResult& result);

// Asks the gateway, and each worker at the address that the gateway reports.  Single-thread.
class ClusterCounters {
 public:
  // `stub`: borrowed; must outlive this.  `status` names the workers.
  ClusterCounters(GenerationStub& stub, const v1::GetStatusResponse& status);

  // A worker that does not answer has no time by stage; the gateway must answer.
  absl::StatusOr<ClusterCounts> Read();
  // As Read, right after the next step has ended: so two readings enclose whole steps.  Does not
  // wait if nothing runs.
  absl::StatusOr<ClusterCounts> ReadAtStepEnd();
  // Makes every worker that runs segments measure its ceilings.
  std::vector<BenchDevice> Devices(const v1::GetStatusResponse& status);

 private:
  ClusterCounts Count(const v1::GetStatusResponse& status);

  GenerationStub& stub_;  // Borrowed.
  std::map<std::string, std::unique_ptr<WorkerClient>> workers_;
};

}  // namespace tandem
