#include "services/gateway/metrics/gateway_counters.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/plan/stage.h"

namespace tandem::gateway {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

double Read(const std::atomic<uint64_t>& count) {
  return static_cast<double>(count.load(kRelaxed));
}
double ReadSeconds(const std::atomic<uint64_t>& ns) { return 1e-9 * Read(ns); }
double Seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

// "Embed,Qkv,Out": the kinds of stage that `plan` puts on a worker, in the model's order.
std::string StagesOn(const Plan& plan, uint32_t worker, uint32_t num_layers) {
  bool runs[kNumStageKinds] = {};
  for (const Segment& segment : plan.segments) {
    if (segment.worker != worker) continue;
    for (uint32_t o = segment.first_ordinal; o <= segment.last_ordinal; ++o) {
      runs[static_cast<int>(StageAt(o, num_layers).kind)] = true;
    }
  }
  std::vector<std::string> names;
  for (int kind = 0; kind < kNumStageKinds; ++kind) {
    if (runs[kind]) names.emplace_back(StageKindName(static_cast<StageKind>(kind)));
  }
  return absl::StrJoin(names, ",");
}

constexpr std::string_view kPools[] = {"global", "window"};

void AddStatus(const v1::GetStatusResponse& status, MetricSamples& samples) {
  using M = GatewayMetrics;
  samples.Add(M::kInfo, 1, {status.version(), status.model()});
  samples.Add(M::kReady, status.state() == "ready" ? 1 : 0);
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.state() != "absent" && worker.state() != "unusable") {
      samples.Add(M::kWorkerUp, worker.state() == "lost" ? 0 : 1, {worker.name()});
    }
    for (const std::string_view state :
         {"connected", "loading", "ready", "lost", "absent", "unusable"}) {
      samples.Add(M::kWorkerState, worker.state() == state ? 1 : 0,
                  {worker.name(), worker.kind(), state});
    }
  }
  samples.Add(M::kRecoveries, static_cast<double>(status.recoveries()));
  samples.Add(M::kPlacementMoves, static_cast<double>(status.placement_moves()));
  samples.Add(M::kModelFileChanged, status.model_notice().empty() ? 0 : 1);
  samples.Add(M::kModelReloads, static_cast<double>(status.model_reloads()));
  const v1::SchedulerStatus& scheduler = status.scheduler();
  samples.Add(M::kRunning, scheduler.running());
  samples.Add(M::kWaiting, scheduler.waiting());
  samples.Add(M::kWaitingLimit, scheduler.max_waiting());
  for (const v1::DrafterStatus& drafter : scheduler.drafters()) {
    const uint64_t rejected = drafter.drafted_tokens() - drafter.accepted_tokens();
    samples.Add(M::kDraftTokens, static_cast<double>(drafter.accepted_tokens()),
                {drafter.name(), "accepted"});
    samples.Add(M::kDraftTokens, static_cast<double>(rejected), {drafter.name(), "rejected"});
    samples.Add(M::kDraftSeconds, drafter.busy_seconds(), {drafter.name()});
  }
  for (int pool = 0; pool < scheduler.kv_blocks_total_size(); ++pool) {
    samples.Add(M::kKvBlocks, scheduler.kv_blocks_total(pool), {kPools[pool]});
    samples.Add(M::kKvBlocksUsed, scheduler.kv_blocks_used(pool), {kPools[pool]});
    samples.Add(M::kKvBlocksCached, scheduler.kv_blocks_cached(pool), {kPools[pool]});
    samples.Add(M::kKvBlocksEvicted, static_cast<double>(scheduler.kv_blocks_evicted(pool)),
                {kPools[pool]});
  }
}

void AddReplicas(const v1::GetStatusResponse& status, MetricSamples& samples) {
  using M = GatewayMetrics;
  for (const v1::ReplicaStatus& replica : status.replicas()) {
    const std::string number = absl::StrFormat("%d", replica.replica());
    const v1::SchedulerStatus& scheduler = replica.scheduler();
    samples.Add(M::kReplicaUp, replica.state() == "ready" ? 1 : 0, {number});
    samples.Add(M::kReplicaRunning, scheduler.running(), {number});
    samples.Add(M::kReplicaWaiting, scheduler.waiting(), {number});
    const uint64_t known = replica.prefix_requests();
    samples.Add(M::kReplicaRequests, static_cast<double>(known), {number, "known"});
    samples.Add(M::kReplicaRequests, static_cast<double>(replica.requests() - known),
                {number, "new"});
    samples.Add(M::kReplicaMoved, static_cast<double>(replica.moved_away()), {number});
    samples.Add(M::kReplicaHandedOver, static_cast<double>(replica.handed_over()), {number});
    samples.Add(M::kReplicaKvBytes, static_cast<double>(replica.kv_sent_bytes()), {number, "sent"});
    samples.Add(M::kReplicaKvBytes, static_cast<double>(replica.kv_received_bytes()),
                {number, "received"});
    for (int pool = 0; pool < scheduler.kv_blocks_used_size(); ++pool) {
      samples.Add(M::kReplicaKvUsed, scheduler.kv_blocks_used(pool), {number, kPools[pool]});
    }
  }
}

void AddCounters(const SchedulerCounters& counters, MetricSamples& samples) {
  for (const SchedulerCounter& counter : kSchedulerCounters) {
    if (counter.metric == nullptr) continue;
    const auto value = static_cast<double>(counters.*counter.value);
    if (counter.metric->num_labels() == 0) {
      samples.Add(*counter.metric, value);
    } else {
      samples.Add(*counter.metric, value, {counter.label});
    }
  }
}

void AddTraffic(const HttpTraffic& traffic, MetricSamples& samples) {
  using M = GatewayMetrics;
  const HttpTraffic::Counts counts = traffic.counts();
  samples.Add(M::kHttpConnections, static_cast<double>(counts.connections));
  for (const auto& [key, count] : counts.answers) {
    samples.Add(M::kHttpRequests, static_cast<double>(count),
                {key.first, absl::StrFormat("%d", key.second)});
  }
}

}  // namespace

GatewayCounters::GatewayCounters() = default;

void GatewayCounters::PlanInForce(const PlanReport& report) {
  const Plan& plan = *report.plan;
  std::vector<Placement> placements;
  for (uint32_t w = 0; w < plan.workers.size(); ++w) {
    placements.push_back({.worker = plan.workers[w].name,
                          .device = plan.workers[w].device,
                          .stages = StagesOn(plan, w, report.num_layers)});
  }
  MutexLock lock(mutex_);
  std::vector<WorkerCalls*>& calls = plan_calls_[report.replica];
  calls.clear();
  for (const Placement& placement : placements) calls.push_back(&calls_[placement.worker]);
  plans_[report.replica] = {std::move(placements), report.epoch};
}

void GatewayCounters::CountRequest(Api api, RequestOutcome outcome, const absl::Status& status) {
  requests_[static_cast<int>(api)][static_cast<int>(outcome)].fetch_add(1, kRelaxed);
  if (status.ok()) return;
  const int code = std::min(static_cast<int>(status.code()), kNumCodes - 1);
  errors_[static_cast<int>(api)][code].fetch_add(1, kRelaxed);
}

void GatewayCounters::RequestRefused(Api api, const absl::Status& status) {
  CountRequest(api, RequestOutcome::kRefused, status);
}

void GatewayCounters::RequestStarted(RequestNumber /*number*/, Api api, absl::Time submitted,
                                     absl::Time now) {
  times_[static_cast<int>(api)].queue_time.Observe(Seconds(now - submitted));
}

void GatewayCounters::RequestFirstToken(RequestNumber /*number*/, Api api, absl::Time submitted,
                                        absl::Time now) {
  times_[static_cast<int>(api)].first_token.Observe(Seconds(now - submitted));
}

void GatewayCounters::RequestEnded(const RequestReport& report) {
  CountRequest(report.request->api, OutcomeOf(report), report.status);
  RequestTimes& times = times_[static_cast<int>(report.request->api)];
  times.duration.Observe(Seconds(report.end - report.submitted));
  times.prompt_tokens.Observe(static_cast<double>(report.request->prompt.size()));
  times.completion_tokens.Observe(report.completion_tokens);
  if (report.completion_tokens > 1) {
    times.token_time.Observe(Seconds(report.last_token - report.first_token) /
                             (report.completion_tokens - 1));
  }
}

void GatewayCounters::ConstraintCompiled(const absl::Status& status, absl::Duration time) {
  (status.ok()                 ? constraints_ok_
   : absl::IsCancelled(status) ? constraints_cancelled_
                               : constraints_refused_)
      .fetch_add(1, kRelaxed);
  compile_time_.Observe(Seconds(time));
}

void GatewayCounters::MaskMade(absl::Duration time) { mask_time_.Observe(Seconds(time)); }

void GatewayCounters::StepEnded(const StepReport& report) {
  if (!report.status.ok()) {
    steps_failed_.fetch_add(1, kRelaxed);
    return;
  }
  steps_done_.fetch_add(1, kRelaxed);
  if (report.queued) steps_queued_.fetch_add(1, kRelaxed);
  decode_rows_.fetch_add(report.decode_rows, kRelaxed);
  prompt_rows_.fetch_add(report.prompt_rows, kRelaxed);
  step_rows_.Observe(report.decode_rows + report.prompt_rows);
  step_time_.Observe(Seconds(report.end - report.turn));
  const std::vector<WorkerCalls*>& plan_calls = plan_calls_.at(report.key.replica);
  for (const SegmentTiming& timing : report.segments) {
    WorkerCalls& calls = *plan_calls[report.plan->segments[timing.segment_index].worker];
    calls.calls.fetch_add(1, kRelaxed);
    calls.round_trip_ns.fetch_add(
        static_cast<uint64_t>(absl::ToInt64Nanoseconds(timing.round_trip)), kRelaxed);
    calls.worker_ns.fetch_add(timing.worker_ns, kRelaxed);
    calls.device_ns.fetch_add(timing.device_ns, kRelaxed);
  }
}

void GatewayCounters::AddRequests(MetricSamples& samples) const {
  using M = GatewayMetrics;
  for (int api = 0; api < kNumApis; ++api) {
    for (int outcome = 0; outcome < kNumRequestOutcomes; ++outcome) {
      samples.Add(
          M::kRequests, Read(requests_[api][outcome]),
          {ApiName(static_cast<Api>(api)), OutcomeName(static_cast<RequestOutcome>(outcome))});
    }
  }
  for (int api = 0; api < kNumApis; ++api) {
    for (int code = 1; code < kNumCodes; ++code) {
      samples.Add(M::kErrors, Read(errors_[api][code]),
                  {ApiName(static_cast<Api>(api)), StatusCodeLabel(code)});
    }
  }
  for (int api = 0; api < kNumApis; ++api) {
    const RequestTimes& times = times_[api];
    for (const Histogram* histogram :
         {&times.duration, &times.first_token, &times.token_time, &times.queue_time,
          &times.prompt_tokens, &times.completion_tokens}) {
      histogram->AddTo(samples, {ApiName(static_cast<Api>(api))});
    }
  }
}

void GatewayCounters::AddConstraints(const ConstraintCounts& constraints,
                                     MetricSamples& samples) const {
  using M = GatewayMetrics;
  samples.Add(M::kCompilations, Read(constraints_ok_), {"ok"});
  samples.Add(M::kCompilations, Read(constraints_refused_), {"refused"});
  samples.Add(M::kCompilations, Read(constraints_cancelled_), {"cancelled"});
  compile_time_.AddTo(samples);
  samples.Add(M::kConstraintHits, Read(constraint_hits_));
  samples.Add(M::kCompileWaiting, static_cast<double>(constraints.waiting));
  samples.Add(M::kConstraintBytes, static_cast<double>(constraints.bytes));
  mask_time_.AddTo(samples);
}

void GatewayCounters::AddSteps(MetricSamples& samples) const {
  using M = GatewayMetrics;
  samples.Add(M::kSteps, Read(steps_done_));
  samples.Add(M::kStepsFailed, Read(steps_failed_));
  samples.Add(M::kStepsQueued, Read(steps_queued_));
  step_time_.AddTo(samples);
  samples.Add(M::kStepRowsTotal, Read(decode_rows_), {"decode"});
  samples.Add(M::kStepRowsTotal, Read(prompt_rows_), {"prompt"});
  step_rows_.AddTo(samples);
}

void GatewayCounters::AddPlan(MetricSamples& samples) const {
  using M = GatewayMetrics;
  MutexLock lock(mutex_);
  uint64_t epoch = 0;
  for (const auto& [replica, plan] : plans_) epoch = std::max(epoch, plan.epoch);
  samples.Add(M::kPlanEpoch, static_cast<double>(epoch));
  // Several replicas may have the same stages on a worker.
  std::set<std::tuple<std::string_view, std::string_view, std::string_view>> placed;
  for (const auto& [replica, plan] : plans_) {
    for (const Placement& placement : plan.placements) {
      placed.emplace(placement.worker, placement.device, placement.stages);
    }
  }
  for (const auto& [worker, device, stages] : placed) {
    samples.Add(M::kPlacement, 1, {worker, device, stages});
  }
  for (const auto& [worker, calls] : calls_) {
    samples.Add(M::kCalls, Read(calls.calls), {worker});
    samples.Add(M::kRoundTrip, ReadSeconds(calls.round_trip_ns), {worker});
    samples.Add(M::kWorkerTime, ReadSeconds(calls.worker_ns), {worker});
    samples.Add(M::kDeviceTime, ReadSeconds(calls.device_ns), {worker});
  }
}

void GatewayCounters::AddTo(const v1::GetStatusResponse& status, const SchedulerCounters& scheduler,
                            const ConstraintCounts& constraints, const HttpTraffic& traffic,
                            MetricSamples& samples) const {
  AddStatus(status, samples);
  AddReplicas(status, samples);
  AddCounters(scheduler, samples);
  AddPlan(samples);
  AddRequests(samples);
  AddConstraints(constraints, samples);
  AddSteps(samples);
  AddTraffic(traffic, samples);
}

}  // namespace tandem::gateway
