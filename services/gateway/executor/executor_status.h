// Status of workers and segments for the status page.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/common/plan/planner.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/executor/worker_finder.h"
#include "tandem/v1/generation.pb.h"
#include "tandem/worker/v1/worker.pb.h"

namespace tandem::gateway {

// Thread-safe.  The engine thread writes; counting a segment takes no lock.
class ExecutorStatus {
 public:
  // Every worker as found: "connected", "absent", "unusable" or "lost".
  void SetPeers(const std::vector<WorkerPeer>& peers);
  // The same for missing workers, and workers that were missing, alone.
  void SetMissing(const std::vector<WorkerPeer>& peers);
  // A plan is in force.  Counters go on for segments that the new plan has too.
  void SetPlan(const Plan& plan, uint32_t num_layers);
  // `detail`: why it is lost.
  void SetState(const std::string& worker, std::string state, std::string detail = "");
  void SetReport(const std::string& worker, const worker::v1::LoadPlanReport& report);

  void SetPlacements(std::vector<v1::PlacementStatus> placements, uint64_t moves);

  // From the engine thread alone.  REQUIRES a plan with that segment.
  void Count(const SegmentTiming& timing);

  void Fill(v1::GetStatusResponse& status) const;

 private:
  struct Worker {
    std::shared_ptr<const WorkerClient> client;  // shared with the executor
    v1::WorkerStatus status;
  };
  struct Counters {
    std::atomic<uint64_t> calls{0};
    std::atomic<uint64_t> device_ns{0};
    std::atomic<uint64_t> round_trip_ns{0};
  };
  struct Segments {
    std::vector<v1::SegmentStatus> descriptions;
    std::vector<Counters> counters;
  };

  Worker* Find(const std::string& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::vector<Worker> workers_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::PlacementStatus> placements_ ABSL_GUARDED_BY(mutex_);
  uint64_t moves_ ABSL_GUARDED_BY(mutex_) = 0;
  // The engine thread's view; replaced under mutex_.
  std::shared_ptr<Segments> segments_ = std::make_shared<Segments>();
};

}  // namespace tandem::gateway
