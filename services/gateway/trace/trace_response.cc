#include "services/gateway/trace/trace_response.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace tandem::gateway {
namespace {

int64_t NanosOrZero(absl::Time time) {
  return time == absl::InfiniteFuture() ? 0 : absl::ToUnixNanos(time);
}

const char* PhaseName(RequestPhase phase) {
  switch (phase) {
    case RequestPhase::kQueue:
      return "queue";
    case RequestPhase::kPrompt:
      return "prompt";
    case RequestPhase::kDecode:
      return "decode";
    case RequestPhase::kPictures:
      return "pictures";
  }
  return "";
}

void FillPlan(const TracedPlan& plan, v1::TracePlan& shown) {
  for (const TracedPlan::Worker& worker : plan.workers) {
    v1::TraceWorker& entry = *shown.add_workers();
    entry.set_name(worker.name);
    entry.set_kind(worker.kind);
    entry.set_device(worker.device);
    entry.set_emulated(worker.emulated);
  }
  for (const TracedPlan::Segment& segment : plan.segments) {
    v1::TracePlannedSegment& entry = *shown.add_segments();
    entry.set_worker(segment.worker);
    entry.set_stages(segment.stages);
    entry.set_kinds(segment.kinds);
  }
}

void FillSegment(const TracedSegment& segment, v1::TraceSegment& shown) {
  shown.set_index(segment.index);
  shown.set_sent_ns(absl::ToUnixNanos(segment.sent));
  shown.set_answered_ns(absl::ToUnixNanos(segment.answered));
  shown.set_worker_ns(segment.worker_ns);
  shown.set_device_ns(segment.device_ns);
  shown.set_device_watts(segment.device_watts);
  shown.set_device_end_ns(absl::ToUnixNanos(segment.device_end()));
  for (int kind = 0; kind < kNumStageKinds; ++kind) {
    if (segment.stage_ns[kind] == 0) continue;
    v1::TraceStageTime& stage = *shown.add_stages();
    stage.set_stage(std::string(StageKindName(static_cast<StageKind>(kind))));
    stage.set_device_ns(segment.stage_ns[kind]);
  }
}

void FillStep(const TracedStep& step, v1::TraceStep& shown) {
  shown.set_step_id(step.key.step_id);
  shown.set_replica(step.key.replica);
  shown.set_span_id(FormatSpanId(step.context.span_id));
  shown.set_begin_ns(absl::ToUnixNanos(step.begin));
  shown.set_end_ns(absl::ToUnixNanos(step.end));
  shown.set_decode_rows(step.decode_rows);
  shown.set_prompt_rows(step.prompt_rows);
  shown.set_drafted_rows(step.drafted_rows);
  shown.set_requests(static_cast<uint32_t>(step.shares.size()));
  shown.set_queued(step.queued);
  shown.set_drafts(step.drafts);
  if (!step.status.ok()) shown.set_error(std::string(absl::StatusCodeToString(step.status.code())));
  for (const TracedSegment& segment : step.segments) FillSegment(segment, *shown.add_segments());
}

void FillRun(const TracedRequest& request, v1::TraceRun& shown) {
  shown.set_span_id(FormatSpanId(request.trace.own.span_id));
  if (request.trace.parent_span_id != 0) {
    shown.set_parent_span_id(FormatSpanId(request.trace.parent_span_id));
  }
  shown.set_sampled(request.trace.own.sampled);
  shown.set_api(request.api);
  shown.set_operation(request.operation);
  shown.set_outcome(request.outcome);
  shown.set_prompt_tokens(request.prompt_tokens);
  shown.set_completion_tokens(request.completion_tokens);
  shown.set_cached_tokens(request.cached_tokens);
  shown.set_submitted_ns(NanosOrZero(request.submitted));
  shown.set_started_ns(NanosOrZero(request.started));
  shown.set_decode_begin_ns(NanosOrZero(request.decode_begin));
  shown.set_first_token_ns(NanosOrZero(request.first_token));
  shown.set_ended_ns(NanosOrZero(request.end));
  shown.set_steps_left_out(request.steps_left_out);
  if (request.picture_times == nullptr) return;
  for (const PictureTime& time : *request.picture_times) {
    v1::TracePicture& picture = *shown.add_pictures();
    picture.set_stage(PictureStageName(time.stage));
    picture.set_picture(time.picture);
    picture.set_batch(time.num_pictures);
    picture.set_begin_ns(absl::ToUnixNanos(time.begin));
    picture.set_end_ns(absl::ToUnixNanos(time.end));
  }
}

}  // namespace

void FillTrace(const std::vector<KeptTrace>& traces, v1::GetTraceResponse& response) {
  const TracedRequest& first = *traces[0].request;
  response.set_request_id(first.request_id);
  response.set_trace_id(FormatTraceId(first.trace.own.trace_id));
  response.set_model(first.model);
  // In the order in which they ran.
  std::map<std::tuple<absl::Time, bool, StepKey>, const TracedStep*> steps;
  for (const KeptTrace& trace : traces) {
    for (const auto& step : trace.steps)
      steps.emplace(std::tuple(step->begin, step->drafts, step->key), step.get());
  }
  std::map<const TracedPlan*, uint32_t> plans;
  std::map<const TracedStep*, uint32_t> places;
  for (const auto& [order, step] : steps) {
    const auto [plan, added] =
        plans.emplace(step->plan.get(), static_cast<uint32_t>(response.plans_size()));
    if (added) FillPlan(*step->plan, *response.add_plans());
    places[step] = static_cast<uint32_t>(response.steps_size());
    v1::TraceStep& shown = *response.add_steps();
    shown.set_plan(plan->second);
    FillStep(*step, shown);
  }
  for (const KeptTrace& trace : traces) {
    v1::TraceRun& run = *response.add_runs();
    FillRun(*trace.request, run);
    for (const auto& step : trace.steps) {
      for (const StepShare& share : step->shares) {
        if (share.request != trace.request->number) continue;
        v1::TraceShare& shown = *run.add_shares();
        shown.set_step(places.at(step.get()));
        shown.set_rows(share.num_rows);
        shown.set_phase(step->drafts ? "draft" : PhaseName(share.phase));
      }
    }
  }
}

}  // namespace tandem::gateway
