// Counts requests, steps and calls of the gateway, for Prometheus.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "services/common/base/mutex.h"
#include "services/gateway/engine/engine_observer.h"
#include "services/gateway/engine/request_outcome.h"
#include "services/gateway/http/http_traffic.h"
#include "services/gateway/metrics/gateway_metrics.h"
#include "services/gateway/model/launcher.h"
#include "services/gateway/scheduler/scheduler_counters.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// Thread-safe: the engines' threads add with relaxed atomics; only plans and pages take locks.
// Labels are names of APIs, codes, routes and the plan's workers: clients cannot add series.
class GatewayCounters final : public EngineObserver {
 public:
  GatewayCounters();

  void PlanInForce(const PlanReport& report) override;
  void RequestRefused(Api api, const absl::Status& status) override;
  void RequestStarted(RequestNumber number, Api api, absl::Time submitted, absl::Time now) override;
  void RequestFirstToken(RequestNumber number, Api api, absl::Time submitted,
                         absl::Time now) override;
  void RequestEnded(const RequestReport& report) override;
  void ConstraintCompiled(const absl::Status& status, absl::Duration time) override;
  void ConstraintFound() override { constraint_hits_.fetch_add(1, std::memory_order_relaxed); }
  void MaskMade(absl::Duration time) override;
  void StepEnded(const StepReport& report) override;

  // Adds every metric of GatewayMetrics.  `status`: as the launcher fills it, with a version;
  // `scheduler`, `constraints`: the launcher's counters.
  void AddTo(const v1::GetStatusResponse& status, const SchedulerCounters& scheduler,
             const ConstraintCounts& constraints, const HttpTraffic& traffic,
             MetricSamples& samples) const;

 private:
  static constexpr int kNumCodes = 17;
  struct WorkerCalls {
    std::atomic<uint64_t> calls{0}, round_trip_ns{0}, worker_ns{0}, device_ns{0};
  };
  // Counters of one API's requests.
  struct RequestTimes {
    Histogram duration{GatewayMetrics::kDuration};
    Histogram first_token{GatewayMetrics::kFirstToken};
    Histogram token_time{GatewayMetrics::kTokenTime};
    Histogram queue_time{GatewayMetrics::kQueueTime};
    Histogram prompt_tokens{GatewayMetrics::kPromptTokens};
    Histogram completion_tokens{GatewayMetrics::kCompletionTokens};
  };
  struct Placement {
    std::string worker, device, stages;
  };
  struct PlanInUse {
    std::vector<Placement> placements;
    uint64_t epoch = 0;
  };

  void CountRequest(Api api, RequestOutcome outcome, const absl::Status& status);
  void AddRequests(MetricSamples& samples) const;
  void AddConstraints(const ConstraintCounts& constraints, MetricSamples& samples) const;
  void AddSteps(MetricSamples& samples) const;
  void AddPlan(MetricSamples& samples) const;

  std::atomic<uint64_t> requests_[kNumApis][kNumRequestOutcomes] = {};
  std::atomic<uint64_t> errors_[kNumApis][kNumCodes] = {};
  std::atomic<uint64_t> constraints_ok_{0}, constraints_refused_{0}, constraints_cancelled_{0};
  std::atomic<uint64_t> constraint_hits_{0};
  Histogram compile_time_{GatewayMetrics::kCompileTime};
  Histogram mask_time_{GatewayMetrics::kMaskTime};
  std::atomic<uint64_t> steps_done_{0}, steps_failed_{0}, steps_queued_{0};
  std::atomic<uint64_t> decode_rows_{0}, prompt_rows_{0};
  RequestTimes times_[kNumApis];
  Histogram step_time_{GatewayMetrics::kStepTime};
  Histogram step_rows_{GatewayMetrics::kStepRows};

  // By replica, by worker of its plan in force; used by the engines' threads, one at a time.
  std::map<uint32_t, std::vector<WorkerCalls*>> plan_calls_;

  mutable Mutex mutex_;
  std::map<uint32_t, PlanInUse> plans_ ABSL_GUARDED_BY(mutex_);  // by replica
  // Of every worker of any plan so far; entries never move.
  std::map<std::string, WorkerCalls> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::gateway
