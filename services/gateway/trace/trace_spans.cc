// Records as OpenTelemetry's spans.
//
// Names and attributes are those of OpenTelemetry's semantic conventions for generative AI and RPC.
// Attributes that these lack are under "tandem.".  Spans hold no text of prompts or answers.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/gateway/trace/trace_records.h"

namespace tandem::gateway {
namespace {

using otlp::v1::Span;

constexpr uint32_t kSampledFlag = 1;

std::string IdBytes(uint64_t id) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(id >> (56 - 8 * i));
  return bytes;
}

std::string IdBytes(const TraceId& id) { return IdBytes(id.high) + IdBytes(id.low); }

uint64_t UnixNanos(absl::Time time) {
  return static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixNanos(time), 0));
}

otlp::v1::AnyValue& Attribute(Span& span, std::string_view key) {
  otlp::v1::KeyValue& attribute = *span.add_attributes();
  attribute.set_key(std::string(key));
  return *attribute.mutable_value();
}
void Set(Span& span, std::string_view key, const std::string& value) {
  Attribute(span, key).set_string_value(value);
}
void Set(Span& span, std::string_view key, int64_t value) {
  Attribute(span, key).set_int_value(value);
}
void Set(Span& span, std::string_view key, double value) {
  Attribute(span, key).set_double_value(value);
}

Span& AddSpan(otlp::v1::ScopeSpans& spans, const TraceId& trace, uint64_t id, uint64_t parent,
              std::string name, absl::Time begin, absl::Time end) {
  Span& span = *spans.add_spans();
  span.set_trace_id(IdBytes(trace));
  span.set_span_id(IdBytes(id));
  if (parent != 0) span.set_parent_span_id(IdBytes(parent));
  span.set_name(std::move(name));
  span.set_kind(Span::SPAN_KIND_INTERNAL);
  span.set_start_time_unix_nano(UnixNanos(begin));
  span.set_end_time_unix_nano(UnixNanos(std::max(begin, end)));
  span.set_flags(kSampledFlag);
  return span;
}

// Only the code: a failure's message may quote the client.
void SetFailure(const absl::Status& status, Span& span) {
  if (status.ok()) return;
  const std::string code(absl::StatusCodeToString(status.code()));
  span.mutable_status()->set_code(otlp::v1::Status::STATUS_CODE_ERROR);
  span.mutable_status()->set_message(code);
  Set(span, "error.type", code);
}

void AddDevice(otlp::v1::ScopeSpans& spans, const TracedStep& step, const TracedSegment& segment,
               uint64_t call_id) {
  const TracedPlan::Segment& planned = step.plan->segments[segment.index];
  const TracedPlan::Worker& worker = step.plan->workers[planned.worker];
  const uint64_t device_id = ChildSpanId(call_id, 0);
  absl::Time begin = segment.device_begin();
  Span& device = AddSpan(spans, step.context.trace_id, device_id, call_id, worker.name + " device",
                         begin, segment.device_end());
  Set(device, "tandem.worker.name", worker.name);
  Set(device, "tandem.device.name", worker.device);
  Set(device, "tandem.segment.stages", planned.stages);
  if (segment.num_stages() < 2) return;
  for (int kind = 0; kind < kNumStageKinds; ++kind) {
    if (segment.stage_ns[kind] == 0) continue;
    // The sum over the segment's layers, whose own times are not known.
    const absl::Time end = begin + absl::Nanoseconds(segment.stage_ns[kind]);
    Span& stage = AddSpan(spans, step.context.trace_id, ChildSpanId(device_id, kind), device_id,
                          std::string(StageKindName(static_cast<StageKind>(kind))), begin, end);
    Set(stage, "tandem.worker.name", worker.name);
    begin = end;
  }
}

void AddCall(otlp::v1::ScopeSpans& spans, const TracedStep& step, const TracedSegment& segment) {
  const TracedPlan::Segment& planned = step.plan->segments[segment.index];
  const TracedPlan::Worker& worker = step.plan->workers[planned.worker];
  const uint64_t id = ChildSpanId(step.context.span_id, segment.index);
  Span& call =
      AddSpan(spans, step.context.trace_id, id, step.context.span_id,
              absl::StrFormat("%s %s", worker.name, planned.kinds), segment.sent, segment.answered);
  call.set_kind(Span::SPAN_KIND_CLIENT);
  Set(call, "rpc.system", "grpc");
  Set(call, "rpc.service", "tandem.worker.v1.Execution");
  Set(call, "rpc.method", "Execute");
  Set(call, "tandem.worker.name", worker.name);
  Set(call, "tandem.segment.index", static_cast<int64_t>(segment.index));
  Set(call, "tandem.segment.stages", planned.stages);
  Set(call, "tandem.worker.seconds", 1e-9 * static_cast<double>(segment.worker_ns));
  AddDevice(spans, step, segment, id);
}

void AddPhase(otlp::v1::ScopeSpans& spans, const TracedRequest& request, RequestPhase phase,
              const char* name, absl::Time begin, absl::Time end) {
  const uint64_t root = request.trace.own.span_id;
  AddSpan(spans, request.trace.own.trace_id, ChildSpanId(root, static_cast<uint64_t>(phase)), root,
          name, begin, end)
      .set_trace_state(request.trace.state);
}

// The stages of a request's pictures, below their phase.
void AddPictureTime(otlp::v1::ScopeSpans& spans, const TracedRequest& request, size_t i) {
  const PictureTime& time = (*request.picture_times)[i];
  const uint64_t phase =
      ChildSpanId(request.trace.own.span_id, static_cast<uint64_t>(RequestPhase::kPictures));
  Span& span = AddSpan(spans, request.trace.own.trace_id, ChildSpanId(phase, i), phase,
                       PictureStageName(time.stage), time.begin, time.end);
  span.set_trace_state(request.trace.state);
  Set(span, "tandem.picture.index", static_cast<int64_t>(time.picture));
  if (time.stage == PictureStage::kEncode) {
    Set(span, "tandem.picture.count", static_cast<int64_t>(time.num_pictures));
  }
}

bool Happened(absl::Time time) { return time != absl::InfiniteFuture(); }

}  // namespace

size_t TracedStep::num_spans() const {
  size_t num_spans = 1;
  for (const TracedSegment& segment : segments) {
    const int num_stages = segment.num_stages();
    num_spans += 2 + (num_stages < 2 ? 0 : num_stages);
  }
  return num_spans;
}

void TracedStep::AppendSpans(otlp::v1::ScopeSpans& spans) const {
  const StepShare& owner = shares[0];
  Span& step = AddSpan(spans, context.trace_id, context.span_id, owner.phase_span_id(),
                       drafts ? "draft step" : "step", begin, end);
  step.set_trace_state(state);
  Set(step, "tandem.step.id", static_cast<int64_t>(key.step_id));
  Set(step, "tandem.replica", static_cast<int64_t>(key.replica));
  Set(step, "tandem.step.rows.decode", static_cast<int64_t>(decode_rows));
  Set(step, "tandem.step.rows.prompt", static_cast<int64_t>(prompt_rows));
  Set(step, "tandem.step.rows.drafted", static_cast<int64_t>(drafted_rows));
  Set(step, "tandem.step.requests", static_cast<int64_t>(shares.size()));
  Attribute(step, "tandem.step.queued").set_bool_value(queued);
  SetFailure(status, step);
  for (const StepShare& share : shares) {
    if (!share.root.sampled || share.request == owner.request) continue;
    Span::Link& link = *step.add_links();
    link.set_trace_id(IdBytes(share.root.trace_id));
    link.set_span_id(IdBytes(share.phase_span_id()));
    link.set_flags(kSampledFlag);
  }
  for (const TracedSegment& segment : segments) AddCall(spans, *this, segment);
}

size_t TracedRequest::num_picture_spans() const {
  if (!Happened(pictures_end) || picture_times == nullptr) return 0;
  return picture_times->size();
}

size_t TracedRequest::num_spans() const {
  return 2 + num_picture_spans() + (Happened(pictures_end) ? 1 : 0) + (Happened(started) ? 1 : 0) +
         (Happened(decode_begin) ? 1 : 0);
}

void TracedRequest::AppendSpans(otlp::v1::ScopeSpans& spans) const {
  Span& root = AddSpan(spans, trace.own.trace_id, trace.own.span_id, trace.parent_span_id,
                       absl::StrFormat("%s %s", operation, model), submitted, end);
  root.set_kind(Span::SPAN_KIND_SERVER);
  root.set_trace_state(trace.state);
  Set(root, "gen_ai.operation.name", operation);
  Set(root, "gen_ai.provider.name", "tandem");
  Set(root, "gen_ai.request.model", model);
  Set(root, "gen_ai.response.model", model);
  Set(root, "gen_ai.response.id", request_id);
  if (max_tokens != kNoTokenLimit) {
    Set(root, "gen_ai.request.max_tokens", static_cast<int64_t>(max_tokens));
  }
  Set(root, "gen_ai.request.temperature", static_cast<double>(temperature));
  Set(root, "gen_ai.request.top_p", static_cast<double>(top_p));
  Set(root, "gen_ai.request.top_k", static_cast<int64_t>(top_k));
  Set(root, "gen_ai.request.seed", static_cast<int64_t>(seed));
  Set(root, "gen_ai.usage.input_tokens", static_cast<int64_t>(prompt_tokens));
  Set(root, "gen_ai.usage.cache_read.input_tokens", static_cast<int64_t>(cached_tokens));
  Set(root, "gen_ai.usage.output_tokens", static_cast<int64_t>(completion_tokens));
  if (status.ok()) {
    Attribute(root, "gen_ai.response.finish_reasons")
        .mutable_array_value()
        ->add_values()
        ->set_string_value(outcome);
  }
  Set(root, "tandem.api", api);
  Set(root, "tandem.outcome", outcome);
  if (Happened(first_token)) {
    Set(root, "tandem.time_to_first_token.seconds", absl::ToDoubleSeconds(first_token - submitted));
  }
  SetFailure(status, root);
  const absl::Time queued = Happened(pictures_end) ? pictures_end : submitted;
  if (Happened(pictures_end)) {
    AddPhase(spans, *this, RequestPhase::kPictures, "pictures", submitted, queued);
    for (size_t i = 0; i < num_picture_spans(); ++i) AddPictureTime(spans, *this, i);
  }
  AddPhase(spans, *this, RequestPhase::kQueue, "queue", queued, std::min(started, end));
  if (!Happened(started)) return;
  AddPhase(spans, *this, RequestPhase::kPrompt, "prompt", started, std::min(decode_begin, end));
  if (!Happened(decode_begin)) return;
  AddPhase(spans, *this, RequestPhase::kDecode, "decode", decode_begin, end);
}

}  // namespace tandem::gateway
