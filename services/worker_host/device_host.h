// Everything around a Worker except RPC: plans, epochs, weights, health, counters.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/common/rpc/adaptive_polling.h"
#include "services/common/worker/stage_work.h"
#include "services/common/worker/worker.h"
#include "services/worker_host/device_counters.h"
#include "services/worker_host/loaded_plan.h"
#include "services/worker_host/weight_source.h"
#include "tandem/worker/v1/worker.pb.h"

namespace tandem {

// Epochs: every plan has one.  A plan is accepted only if its epoch is above the highest that was
// accepted before.  A call runs only under the epoch of the plan in force, so late calls and old
// plans are refused.  A gateway learns the highest epoch from Describe.
//
// Holder: a plan belongs to the gateway whose plan_token it carries.  While that gateway's lease at
// the loader is alive, no other gateway can replace or unload the plan.
//
// Health: SelfTest decides at the start.  If a run fails with UNAVAILABLE or an idle check fails,
// the worker is out of service until a plan is loaded again.
class DeviceHost {
 public:
  using Progress = std::function<void(double fraction, std::string_view phase)>;
  // Called from the device thread at every change of usability.
  using OnServing = std::function<void(bool)>;

  // `source`: Borrowed; must outlive this.  If a segment runs for longer than `stuck_after`, the
  // device hangs.  `measure_ceilings`: measure them at the first idle check with a plan in force.
  DeviceHost(std::unique_ptr<Worker> worker, WeightSource& source, absl::Duration stuck_after,
             bool measure_ceilings, OnServing on_serving);
  ~DeviceHost();

  // --- From the device thread only.

  void SelfTest();
  // Loads a plan.  ABORTED, INVALID_ARGUMENT: as CheckEpoch; UNAVAILABLE: another gateway holds the
  // plan in force; it stays in force then.  FAILED_PRECONDITION: the self-test has failed.
  // Otherwise as LoadedPlan::Create, WeightSource and Worker::Load, and no plan is in force.
  absl::StatusOr<worker::v1::LoadPlanReport> Load(const worker::v1::LoadPlanRequest& request,
                                                  const Progress& progress);
  // Drops plan, weights and lease.  ABORTED: the plan in force has another epoch, or there is none.
  // PERMISSION_DENIED: it has another token.
  absl::Status Unload(const worker::v1::UnloadPlanRequest& request);
  // Submits a call's segment after those of earlier calls.  Returns the number to pass to Wait.
  uint64_t Submit(const worker::v1::ExecuteRequest& request);
  // Waits for a call's segment and those before it, and fills the call's answer.  A failure is in
  // the answer's code and message.  Does not set worker_ns.  REQUIRES: one Wait for each Submit.
  void Wait(uint64_t call, worker::v1::ExecuteResponse& response);
  // As Worker's.
  bool runs_in_wait() const { return worker_->runs_in_wait(); }
  void CheckIdle();
  // As Worker::Ceilings.  UNAVAILABLE: the device is out of service.
  absl::StatusOr<worker::v1::MeasureCeilingsResponse> MeasureCeilings();
  // Called when a segment has ended and no call has come yet.
  const AdaptivePolling& until_next_call() const { return until_next_call_; }

  // --- From any thread.

  // ABORTED: `epoch` is not above the highest accepted.  INVALID_ARGUMENT: it is so far above that
  // it would leave too few epochs for later plans.
  absl::Status CheckEpoch(uint64_t epoch) const;
  // UNAVAILABLE: the self-test has not run yet, or the device hangs.  FAILED_PRECONDITION: the
  // self-test has failed; the message has the reason.
  absl::StatusOr<worker::v1::DescribeResponse> Describe() const;
  worker::v1::GetStatusResponse GetStatus() const;
  // A count that grows with every action of the device thread, progress of a load included, and at
  // least once in every idle interval.
  uint64_t turns() const { return turns_.load(std::memory_order_relaxed); }
  void CountTurn() { turns_.fetch_add(1, std::memory_order_relaxed); }
  bool IsStuck() const { return RunningFor() > stuck_after_; }

 private:
  absl::Status LoadPlan(const worker::v1::LoadPlanRequest& request, const Progress& progress,
                        worker::v1::LoadPlanReport& report);
  absl::Status FetchWeights(const worker::v1::LoadPlanRequest& request, const Progress& progress);
  // UNAVAILABLE: the plan in force is another gateway's, and its lease is alive.
  absl::Status CheckHolder(const std::string& plan_token);
  // The holder of a plan, and where to ask whether its lease is alive.
  struct PlanHolder {
    std::string token;
    std::string loader_target;  // empty: a gateway on another host, whose lease cannot be checked
    std::string lease_token;
    uint32_t region_id = 0;
  };
  // A submitted call that was not waited for, and its segment's result once it has ended.
  struct Call {
    uint64_t number = 0;
    uint64_t step_id = 0;
    uint32_t segment_index = 0;
    uint32_t lane = 0;
    uint64_t epoch = 0;
    StepHeader header;  // of the step, once its segment is submitted
    SegmentWork work;
    std::optional<absl::StatusOr<SegmentResult>> result;
  };
  // Fills the call's header and work.
  absl::Status SubmitSegment(const worker::v1::ExecuteRequest& request, Call& call);
  // Waits for the segments of all calls up to `last`.
  void Settle(uint64_t last);
  void SettleAll() { Settle(std::numeric_limits<uint64_t>::max()); }
  // Runs a call of the worker that may hang.
  template <typename F>
  auto Watched(F&& call) -> decltype(call());
  // How long the current call of the worker has been running; zero if there is none.
  absl::Duration RunningFor() const;
  void DropPlan();
  // Out of service until a reload, for the reason given.
  void DeviceLost(const absl::Status& reason);
  void SetServing(bool serving);
  void Publish(const worker::v1::LoadPlanReport& report);

  WeightSource& source_;
  const absl::Duration stuck_after_;
  bool measure_ceilings_;  // not measured yet; used by the device thread only
  const OnServing on_serving_;
  const std::unique_ptr<Worker> worker_;
  const std::string holder_;  // how the lease names this worker

  // Used by the device thread only.
  bool self_tested_ = false;
  bool serving_ = false;
  absl::Status device_ = absl::OkStatus();  // why it is out of service
  LeasedWeights leased_;
  std::unique_ptr<LoadedPlan> plan_;
  PlanHolder plan_holder_;           // of plan_
  std::vector<SegmentCosts> costs_;  // by index in the plan; empty for other workers' segments
  AdaptivePolling until_next_call_;
  uint64_t num_calls_ = 0;
  std::deque<Call> calls_;  // in order; few

  std::atomic<uint64_t> highest_epoch_{0};
  std::atomic<int64_t> run_since_ns_{0};  // steady clock; 0: no segment runs
  std::atomic<uint64_t> turns_{0};
  DeviceCounters counters_;

  // State that the device thread publishes to other threads.
  mutable absl::Mutex mutex_;
  bool self_test_has_run_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status self_test_ ABSL_GUARDED_BY(mutex_);
  worker::v1::DescribeResponse description_ ABSL_GUARDED_BY(mutex_);
  uint64_t plan_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string model_id_ ABSL_GUARDED_BY(mutex_);
  worker::v1::LoadPlanReport report_ ABSL_GUARDED_BY(mutex_);
  std::optional<worker::v1::MeasureCeilingsResponse> ceilings_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
