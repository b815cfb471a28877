// Records of requests and steps, which spans are made from.  They hold no text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "services/common/plan/planner.h"
#include "services/common/trace/trace_context.h"
#include "services/gateway/engine/engine_observer.h"
#include "services/gateway/trace/span_exporter.h"

namespace tandem::gateway {

// Spans below a request's span; their ids are ChildSpanId's.
enum class RequestPhase : uint8_t { kQueue, kPrompt, kDecode, kPictures };

inline constexpr size_t kMaxPictureSpans = 256;  // of a request

// A plan's workers and segments by name.  Immutable; shared by the steps that ran it.
struct TracedPlan {
  struct Worker {
    std::string name, device, kind;
    bool emulated = false;
  };
  struct Segment {
    uint32_t worker = 0;
    std::string stages;  // "Out(3)+Ffn(3)+Qkv(4)"
    std::string kinds;   // "Out+Ffn+Qkv"
    uint32_t first_ordinal = 0;
    uint32_t last_ordinal = 0;
  };
  std::vector<Worker> workers;
  std::vector<Segment> segments;

  explicit TracedPlan(const Plan& plan);
  // Whether this describes `plan`.
  bool Describes(const Plan& plan) const;
};

// One call of a worker.
struct TracedSegment {
  uint32_t index = 0;
  absl::Time sent;  // or when the worker finished its earlier work, if that was later
  absl::Time answered;
  absl::Duration way_back;  // of the answer: assumed to be half of the hop
  uint64_t worker_ns = 0;
  uint64_t device_ns = 0;
  double device_watts = 0.0;  // as SegmentTiming's
  std::array<uint64_t, kNumStageKinds> stage_ns = {};

  int num_stages() const;  // kinds that took time
  // The device's time is assumed to end when the worker answers.
  absl::Time device_end() const { return answered - way_back; }
  absl::Time device_begin() const { return device_end() - absl::Nanoseconds(device_ns); }
};

// One request's share of a step.
struct StepShare {
  RequestNumber request = 0;
  TraceContext root;
  RequestPhase phase = RequestPhase::kPrompt;
  uint32_t num_rows = 0;

  uint64_t phase_span_id() const { return ChildSpanId(root.span_id, static_cast<uint64_t>(phase)); }
};

// Its spans: the step, under the phase of its first sampled request and linked to the phases of the
// others; below it a span for each call; below each call the device's time and, if there are
// several, the kinds of stage.
struct TracedStep final : SpanSource {
  StepKey key;
  TraceContext context;
  std::string state;
  absl::Time begin, end;  // `begin`: when the devices had finished their earlier work
  uint32_t decode_rows = 0;
  uint32_t prompt_rows = 0;
  uint32_t drafted_rows = 0;
  bool queued = false;
  bool drafts = false;  // a drafter's, of its own plan
  absl::Status status;
  std::shared_ptr<const TracedPlan> plan;  // shared with other steps
  std::vector<StepShare> shares;           // first: of the request whose trace this belongs to
  std::vector<TracedSegment> segments;

  size_t num_bytes() const;
  size_t num_spans() const override;
  void AppendSpans(otlp::v1::ScopeSpans& spans) const override;
};

// Its spans: the request, its phases below it, and below its pictures their stages.
struct TracedRequest final : SpanSource {
  RequestNumber number = 0;
  std::string request_id;
  std::string tenant;  // whose request it is
  RequestTrace trace;
  std::string model;
  std::string api;        // "openai"
  std::string operation;  // OpenTelemetry's gen_ai.operation.name
  std::string outcome;    // "stop"
  absl::Time submitted, end;
  absl::Time pictures_end = absl::InfiniteFuture();  // infinite: it has none
  // At most kMaxPictureSpans; shared with its other choices; may be null.
  std::shared_ptr<const PictureTimes> picture_times;
  absl::Time started = absl::InfiniteFuture();  // infinite: it never started
  absl::Time decode_begin = absl::InfiniteFuture();
  absl::Time first_token = absl::InfiniteFuture();
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t max_tokens = kNoTokenLimit;
  float temperature = 0.0f;
  float top_p = 1.0f;
  uint32_t top_k = 0;
  uint64_t seed = 0;
  absl::Status status;
  v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED;
  uint32_t steps_left_out = 0;  // not kept: over the limit for one request

  size_t num_spans() const override;
  void AppendSpans(otlp::v1::ScopeSpans& spans) const override;

 private:
  size_t num_picture_spans() const;
};

}  // namespace tandem::gateway
