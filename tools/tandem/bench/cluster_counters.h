// What a cluster has counted so far, and the difference of two such counts.
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
  // Between these the last of them ended.
  absl::Time earliest = absl::InfinitePast(), latest = absl::InfinitePast();
  uint64_t steps_begun = 0;
  uint64_t steps_queued = 0;  // of steps_begun
  uint64_t step_bytes = 0;
  uint64_t preemptions = 0;
  std::vector<BenchWorkerTime> workers;  // in the order of the status
};

// Whether the plan has a segment on the worker.  One without, as an NPU that the machine does not
// have, is no part of a measurement.
bool RunsSegments(const v1::GetStatusResponse& status, const std::string& worker);

// Adds what was counted between `before` and `after`, times `scale`.
void AddCounts(const ClusterCounts& before, const ClusterCounts& after, double scale,
               BenchResult& result);

// Asks the gateway, and each worker at the address that the gateway has of it.  Single-thread.
class ClusterCounters {
 public:
  // `stub`: borrowed; must outlive this.  `status` names the workers.
  ClusterCounters(GenerationStub& stub, const v1::GetStatusResponse& status);

  // A worker that does not answer has no time by stage; the gateway must answer.
  absl::StatusOr<ClusterCounts> Read();
  // As Read, right after the next step has ended: devices worked on exactly the steps between two
  // such reads.  Does not wait where nothing runs.
  absl::StatusOr<ClusterCounts> ReadAtStepEnd();
  // Every worker that runs segments, with what it does at best: asks each to measure.
  std::vector<BenchDevice> Devices(const v1::GetStatusResponse& status);

 private:
  ClusterCounts Count(const v1::GetStatusResponse& status);

  GenerationStub& stub_;  // Borrowed.
  std::map<std::string, std::unique_ptr<WorkerClient>> workers_;
};

}  // namespace tandem
