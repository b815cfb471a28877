#include "services/gateway/trace/tracer.h"

#include <algorithm>

#include "services/gateway/engine/request_outcome.h"

namespace tandem::gateway {
namespace {

// The first of them, so that traces of many pictures stay small.
std::shared_ptr<const PictureTimes> KeptTimes(const std::shared_ptr<const PictureTimes>& times) {
  if (times == nullptr || times->size() <= kMaxPictureSpans) return times;
  return std::make_shared<const PictureTimes>(times->begin(), times->begin() + kMaxPictureSpans);
}

}  // namespace

Tracer::Tracer(TracerOptions options)
    : options_(std::move(options)), ring_(options_.keep_requests, options_.max_kept_bytes) {}

void Tracer::RequestAccepted(RequestNumber number, const EngineRequest& request,
                             absl::Time /*submitted*/) {
  live_[number].trace = request.trace;
}

void Tracer::RequestFirstToken(RequestNumber number, Api /*api*/, absl::Time /*submitted*/,
                               absl::Time now) {
  live_.at(number).first_token = now;
}

void Tracer::StepBegins(const StepKey& key, std::span<const RequestRows> requests,
                        StepTrace& trace) {
  Begun begun{.step_id = key.step_id};
  const RequestTrace* owner = nullptr;
  for (const RequestRows& rows : requests) {
    const auto found = live_.find(rows.request);
    if (found == live_.end()) continue;
    const RequestTrace& candidate = found->second.trace;
    if (owner != nullptr && (owner->own.sampled || !candidate.own.sampled)) continue;
    owner = &candidate;
    begun.owner = rows.request;
  }
  if (owner == nullptr) return;
  trace.step = {owner->own.trace_id, RandomSpanId(), owner->own.sampled};
  trace.state = owner->state;
  begun.trace = trace;
  replicas_[key.replica].begun.push_back(std::move(begun));
}

std::shared_ptr<TracedStep> Tracer::Record(const StepReport& report,
                                           std::shared_ptr<const TracedPlan>& plan) {
  if (plan == nullptr || !plan->Describes(*report.plan)) {
    plan = std::make_shared<const TracedPlan>(*report.plan);
  }
  auto step = std::make_shared<TracedStep>();
  step->key = report.key;
  step->begin = report.turn;
  step->end = report.end;
  step->decode_rows = report.decode_rows;
  step->prompt_rows = report.prompt_rows;
  step->drafted_rows = report.drafted_rows;
  step->queued = report.queued;
  step->status = report.status;
  step->plan = plan;
  step->segments.reserve(report.segments.size());
  for (const SegmentTiming& timing : report.segments) {
    const absl::Duration hop = timing.answered - timing.sent - absl::Nanoseconds(timing.worker_ns);
    // The times come from two clocks, up to a microsecond apart: keep them in order.
    const absl::Time answered = std::clamp(timing.answered, report.turn, report.end);
    step->segments.push_back({.index = timing.segment_index,
                              .sent = std::clamp(timing.sent, report.turn, answered),
                              .answered = answered,
                              .way_back = std::max(hop, absl::ZeroDuration()) / 2,
                              .worker_ns = timing.worker_ns,
                              .device_ns = timing.device_ns,
                              .device_watts = timing.device_watts,
                              .stage_ns = timing.stage_ns});
  }
  return step;
}

void Tracer::StepEnded(const StepReport& report) {
  TakeDrafts();
  auto& [all_begun, plan] = replicas_[report.key.replica];
  const uint64_t step_id = report.key.step_id;
  // If several steps are lost together, all end with the first.
  while (!all_begun.empty() && all_begun.front().step_id < step_id) all_begun.pop_front();
  if (all_begun.empty() || all_begun.front().step_id != step_id) return;
  const Begun begun = std::move(all_begun.front());
  all_begun.pop_front();
  std::vector<StepShare> shares = SharesOf(report, begun.owner);
  if (shares.empty() || !Keeps(begun.trace.step)) return;
  const std::shared_ptr<TracedStep> step = Record(report, plan);
  step->context = begun.trace.step;
  step->state = begun.trace.state;
  step->shares = std::move(shares);
  Add(step);
}

void Tracer::DraftStepEnded(const StepReport& report) {
  if (options_.keep_requests == 0 && options_.exporter == nullptr) return;
  MutexLock lock(mutex_);
  if (drafts_.size() >= kMostDrafts) return;
  const std::shared_ptr<TracedStep> step = Record(report, draft_plans_[report.key.replica]);
  step->drafts = true;
  drafts_.push_back({step, {report.requests.begin(), report.requests.end()}});
}

void Tracer::TakeDrafts() {
  std::vector<Draft> drafts;
  {
    MutexLock lock(mutex_);
    drafts.swap(drafts_);
  }
  for (const auto& [step, requests] : drafts) {
    const RequestTrace* owner = nullptr;
    for (const RequestRows& rows : requests) {
      const auto found = live_.find(rows.request);
      if (found == live_.end()) continue;  // it has ended
      const Live& live = found->second;
      const bool decodes = step->begin >= live.first_token;
      step->shares.push_back({.request = rows.request,
                              .root = live.trace.own,
                              .phase = decodes ? RequestPhase::kDecode : RequestPhase::kPrompt,
                              .num_rows = rows.num_rows});
      if (owner != nullptr && (owner->own.sampled || !live.trace.own.sampled)) continue;
      owner = &live.trace;
      std::swap(step->shares.front(), step->shares.back());
    }
    if (owner == nullptr) continue;
    step->context = {owner->own.trace_id, RandomSpanId(), owner->own.sampled};
    step->state = owner->state;
    if (Keeps(step->context)) Add(step);
  }
}

bool Tracer::Keeps(const TraceContext& step) const {
  return options_.keep_requests > 0 || (options_.exporter != nullptr && step.sampled);
}

void Tracer::Add(const std::shared_ptr<const TracedStep>& step) {
  if (options_.keep_requests > 0) Keep(step);
  if (options_.exporter != nullptr && step->context.sampled) options_.exporter->Add(step);
}

std::vector<StepShare> Tracer::SharesOf(const StepReport& report, RequestNumber owner) {
  std::vector<StepShare> shares;
  shares.reserve(report.requests.size());
  for (const RequestRows& rows : report.requests) {
    const auto found = live_.find(rows.request);
    if (found == live_.end()) continue;  // ended while the step ran
    Live& live = found->second;
    const bool decodes = live.first_token != absl::InfiniteFuture();
    // A queued step may have begun on the device before the token was decided.
    if (decodes) live.decode_begin = std::min({live.decode_begin, live.first_token, report.turn});
    shares.push_back({.request = rows.request,
                      .root = live.trace.own,
                      .phase = decodes ? RequestPhase::kDecode : RequestPhase::kPrompt,
                      .num_rows = rows.num_rows});
    if (rows.request == owner) std::swap(shares.front(), shares.back());
  }
  if (!shares.empty() && shares.front().request != owner) shares.clear();  // its trace is complete
  return shares;
}

void Tracer::Keep(const std::shared_ptr<const TracedStep>& step) {
  const size_t num_bytes = step->num_bytes();
  for (const StepShare& share : step->shares) {
    Live& live = live_.at(share.request);
    if (live.num_bytes + num_bytes > options_.max_request_bytes) {
      ++live.steps_left_out;
      continue;
    }
    live.num_bytes += num_bytes;
    live.steps.push_back(step);
  }
}

void Tracer::RequestEnded(const RequestReport& report) {
  TakeDrafts();
  const auto found = live_.find(report.number);
  if (found == live_.end()) return;
  Live live = std::move(found->second);
  live_.erase(found);
  const EngineRequest& from = *report.request;
  auto request = std::make_shared<TracedRequest>();
  request->number = report.number;
  request->request_id = from.request_id;
  request->tenant = from.tenant.name;
  request->trace = std::move(live.trace);
  request->model = options_.model;
  request->api = std::string(ApiName(from.api));
  request->operation = from.embedding ? "embeddings" : from.chat ? "chat" : "text_completion";
  request->outcome = std::string(OutcomeName(OutcomeOf(report)));
  request->submitted = report.submitted;
  request->end = report.end;
  request->pictures_end = from.pictures_end;
  request->picture_times = KeptTimes(from.picture_times);
  request->started = report.started;
  request->first_token = report.first_token;
  request->decode_begin = std::min(live.decode_begin, report.first_token);
  request->prompt_tokens = static_cast<uint32_t>(from.prompt.size());
  request->completion_tokens = report.completion_tokens;
  request->cached_tokens = report.cached_tokens;
  request->max_tokens = from.max_tokens;
  request->temperature = from.sampling.temperature;
  request->top_p = from.sampling.top_p;
  request->top_k = from.sampling.top_k;
  request->seed = from.sampling.seed;
  request->status = report.status;
  request->reason = report.reason;
  request->steps_left_out = live.steps_left_out;
  if (options_.keep_requests > 0) ring_.Add({request, std::move(live.steps)});
  if (options_.exporter != nullptr && request->trace.own.sampled) {
    options_.exporter->Add(std::move(request));
  }
}

}  // namespace tandem::gateway
