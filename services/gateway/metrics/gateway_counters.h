// Counts what the gateway does, for Prometheus.
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
#include "services/gateway/scheduler/scheduler_counters.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// Thread-safe: the engine's thread adds with relaxed atomics, locks are for plans and pages alone.
// Labels are names of APIs, codes, routes and of the plan's workers: clients cannot add to them.
class GatewayCounters final : public EngineObserver {
 public:
  GatewayCounters();

  void PlanInForce(const PlanReport& report) override;
  void RequestRefused(Api api, const absl::Status& status) override;
  void RequestStarted(RequestNumber number, Api api, absl::Time submitted, absl::Time now) override;
  void RequestFirstToken(RequestNumber number, Api api, absl::Time submitted,
                         absl::Time now) override;
  void RequestEnded(const RequestReport& report) override;
  void StepEnded(const StepReport& report) override;

  // Everything of GatewayMetrics. `status` as the launcher fills it, with a version;
  // `scheduler`: the launcher's counters.
  void AddTo(const v1::GetStatusResponse& status, const SchedulerCounters& scheduler,
             const HttpTraffic& traffic, MetricSamples& samples) const;

 private:
  static constexpr int kNumCodes = 17;
  struct WorkerCalls {
    std::atomic<uint64_t> calls{0}, round_trip_ns{0}, worker_ns{0}, device_ns{0};
  };
  // Of the requests that came by one API.
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

  void CountRequest(Api api, RequestOutcome outcome, const absl::Status& status);
  void AddRequests(MetricSamples& samples) const;
  void AddSteps(MetricSamples& samples) const;
  void AddPlan(MetricSamples& samples) const;

  std::atomic<uint64_t> requests_[kNumApis][kNumRequestOutcomes] = {};
  std::atomic<uint64_t> errors_[kNumApis][kNumCodes] = {};
  std::atomic<uint64_t> steps_done_{0}, steps_failed_{0}, steps_queued_{0};
  std::atomic<uint64_t> decode_rows_{0}, prompt_rows_{0};
  RequestTimes times_[kNumApis];
  Histogram step_time_{GatewayMetrics::kStepTime};
  Histogram step_rows_{GatewayMetrics::kStepRows};

  // The engine thread's own: by worker of the plan in force.
  std::vector<WorkerCalls*> plan_calls_;

  mutable Mutex mutex_;
  std::vector<Placement> placements_ ABSL_GUARDED_BY(mutex_);
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of every worker that a plan has had; they keep their places.
  std::map<std::string, WorkerCalls> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::gateway
