// Everything around a Worker except RPC: plans, epochs, weights, calls, health, counters.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/common/base/clock.h"
#include "services/common/rpc/adaptive_polling.h"
#include "services/common/worker/stage_work.h"
#include "services/common/worker/worker.h"
#include "services/worker_host/device_counters.h"
#include "services/worker_host/driver_guard.h"
#include "services/worker_host/hosted_plans.h"
#include "services/worker_host/weight_source.h"
#include "tandem/worker/v1/worker.pb.h"

namespace tandem {

// Waits for calls.
class CallWaiter {
 public:
  // Called from DeviceHost::Turn: calls that it wants have ended.
  virtual void CallsEnded() = 0;

 protected:
  ~CallWaiter() = default;
};

// Epochs: every plan has one.  A plan is accepted only if its epoch is above the highest that was
// accepted before, of any plan.  A call runs only under the epoch of a plan in force, so late calls
// and old plans are refused.  A gateway learns the highest epoch from Describe.
//
// Holder: plans belong to the gateway whose plan_token they carry.  While that gateway's lease at
// the loader is alive, no other gateway can load plans here or unload one.
//
// Turns: the device runs submissions of one plan after another's.  A call of a plan waits for at
// most one or two submissions of each other plan, not for a whole long step (Worker::Advance).
//
//   plan A  | A1 | A2 |    | A3 | A4 | ...      a prompt chunk, cut into submissions
//   plan B            | B1 |                    a step that comes while A1 runs
//
// Health: SelfTest decides at the start.  The worker is out of service until a plan is loaded again
// if a run or a measurement fails with UNAVAILABLE, or if the device fails an idle check or the check
// after a load that failed.
class DeviceHost {
 public:
  using Progress = std::function<void(double fraction, std::string_view phase)>;
  // Called from the device thread at every change of usability.
  using OnServing = std::function<void(bool)>;
  // Mean power of the device over about the last second, watts; 0: not readable.  Called from the
  // device thread for each answer, so it must take no time.
  using Power = std::function<double()>;

  // `source`: Borrowed; must outlive this.  If a segment runs for longer than `stuck_after`, the
  // device hangs.  `measure_ceilings`: measure them at the first idle check with a plan in force.
  // `power`: empty where it cannot be read.
  DeviceHost(std::unique_ptr<Worker> worker, WeightSource& source, absl::Duration stuck_after,
             bool measure_ceilings, OnServing on_serving, Power power = {});
  ~DeviceHost();

  // --- From the device thread only.

  void SelfTest();
  // Loads a plan, in place of the one with its id.  ABORTED, INVALID_ARGUMENT: as CheckEpoch;
  // UNAVAILABLE: another gateway holds the plans in force, and its lease is alive; they stay then.
  // FAILED_PRECONDITION: the self-test has failed.  Otherwise as HostedPlans::Load; then no plan
  // with that id is in force.
  absl::StatusOr<worker::v1::LoadPlanReport> Load(const worker::v1::LoadPlanRequest& request,
                                                  const Progress& progress);
  // Drops a plan, its weights and its lease.  Errors as HostedPlans::Unload.
  absl::Status Unload(const worker::v1::UnloadPlanRequest& request);

  // Submits a call's segment after those of earlier calls of its plan.  Returns the call's number.
  uint64_t Submit(const worker::v1::ExecuteRequest& request);
  // The masks of a call that were to follow are written.  REQUIRES no later call of its plan.
  void MasksReady(uint64_t call);
  // Has Turn run a call to its end and tell `waiter`.  `waiter`: Borrowed until then.
  // REQUIRES a call that was not wanted before.
  void Want(uint64_t call, CallWaiter* waiter);
  // Whether Turn has something to do.
  bool busy() const;
  // Whether a call awaits its masks, and would fail if it had to end now.
  bool awaits_masks() const;
  // Whether several plans share the device: between two turns, other plans' calls may come.
  bool shared() const { return plans_.size() > 1; }
  // Waits until one more submission has ended, of the plan whose turn it is, and tells the waiters
  // of calls that have ended.  With one plan: until one more call has ended.
  void Turn();
  // Whether a call's segment has ended, or failed.
  bool Ended(uint64_t call) const;
  // Fills the answer of a call that has ended, and forgets the call.  A failure is in the answer's
  // code and message.  Does not set worker_ns.
  void Answer(uint64_t call, worker::v1::ExecuteResponse& response);
  // For tests: waits for a call and those before it, and fills its answer.
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
  // A submitted call that was not answered, and its segment's result once it has ended.
  struct Call {
    uint64_t number = 0;
    uint64_t step_id = 0;
    uint32_t segment_index = 0;
    uint32_t lane = 0;
    uint64_t epoch = 0;
    uint32_t plan = 0;  // HostedPlan::number, once its segment is submitted
    StepHeader header;  // of the step, likewise
    SegmentWork work;
    // Of a copy of KV, which has ended when it is submitted: what it has read, if it is sent inline.
    std::optional<worker::v1::InlineOutputs> copied;
    CallWaiter* waiter = nullptr;
    bool awaits_masks = false;
    std::optional<absl::StatusOr<SegmentResult>> result;
  };
  // Fills the call's plan, header and work.
  absl::Status SubmitSegment(const worker::v1::ExecuteRequest& request, Call& call);
  // Waits for the calls of its plan, then copies.
  absl::StatusOr<SegmentResult> CopyKv(const worker::v1::ExecuteRequest& request, Call& call);
  // Waits for the segments of a plan's calls up to number `last`.
  void EndCallsOf(uint32_t plan, uint64_t last);
  void ReleaseMasks(Call& call);
  // The call that gets the next turn: the oldest without a result, of the plan that has waited
  // longest.  Null: no plan needs one.
  Call* NextCall();
  // Waits for a call's segment.  If it still awaits masks it has failed.  REQUIRES that no older call
  // of its plan is without a result.
  void End(Call& call);
  // Waits for all segments, in the order of their calls.
  void SettleAll();
  void TellWaiters();
  // Runs a call of the worker that may hang.
  template <typename F>
  auto Watched(F&& call) -> decltype(call()) {
    run_since_ns_.store(NowNanos(), std::memory_order_relaxed);
    auto result = GuardDriver("the worker", std::forward<F>(call));
    run_since_ns_.store(0, std::memory_order_relaxed);
    return result;
  }
  // How long the current call of the worker has been running; zero if there is none.
  absl::Duration RunningFor() const;
  // A load that failed may have lost the device, and other plans in force with it.
  void CheckAfterFailedLoad();
  // Out of service until a reload, for the reason given.
  void DeviceLost(const absl::Status& reason);
  void SetServing(bool serving);
  void PublishPlans();

  const absl::Duration stuck_after_;
  bool measure_ceilings_;  // not measured yet; used by the device thread only
  const OnServing on_serving_;
  const Power power_;
  const std::unique_ptr<Worker> worker_;

  // Used by the device thread only.
  bool self_tested_ = false;
  bool serving_ = false;
  absl::Status device_ = absl::OkStatus();  // why it is out of service
  HostedPlans plans_;
  AdaptivePolling until_next_call_;
  uint64_t num_calls_ = 0;
  uint64_t num_plan_turns_ = 0;
  std::array<uint64_t, kMaxPlans> last_turn_ = {};  // by plan
  std::deque<Call> calls_;                          // in order; few

  std::atomic<uint64_t> highest_epoch_{0};
  std::atomic<int64_t> run_since_ns_{0};  // steady clock; 0: no segment runs
  std::atomic<uint64_t> turns_{0};
  DeviceCounters counters_;

  // State that the device thread publishes to other threads.
  mutable absl::Mutex mutex_;
  bool self_test_has_run_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status self_test_ ABSL_GUARDED_BY(mutex_);
  worker::v1::DescribeResponse description_ ABSL_GUARDED_BY(mutex_);
  std::vector<worker::v1::PlanStatus> plan_statuses_ ABSL_GUARDED_BY(mutex_);
  std::optional<worker::v1::MeasureCeilingsResponse> ceilings_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
