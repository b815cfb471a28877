// W3C Trace Context: the trace of a request, and the span that called.
//
//   traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//                version, trace, caller's span, flags (1: sampled)
//
// Source: https://www.w3.org/TR/trace-context/ (level 1, and level 2's rules for later versions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// 128 bits at random, never all zero.
struct TraceId {
  uint64_t high = 0;
  uint64_t low = 0;

  bool valid() const { return high != 0 || low != 0; }
  bool operator==(const TraceId&) const = default;
};

// A span's name in headers.
struct TraceContext {
  TraceId trace_id;
  uint64_t span_id = 0;
  bool sampled = false;

  bool operator==(const TraceContext&) const = default;
};

// nullopt if the header is invalid, and for version ff, which is forbidden.
std::optional<TraceContext> ParseTraceParent(std::string_view header);
std::string FormatTraceParent(const TraceContext& context);
// 32 and 16 digits.
std::string FormatTraceId(const TraceId& id);
std::string FormatSpanId(uint64_t id);

// The vendors' entries, without blanks around them.  Empty if an entry breaks the grammar, a key
// occurs twice, or there are more than 32 entries.
std::string CheckTraceState(std::string_view header);

TraceId RandomTraceId();
uint64_t RandomSpanId();
// The id of child `number` of span `span_id`: the same wherever it is computed.
uint64_t ChildSpanId(uint64_t span_id, uint64_t number);

// A request's own span, and the span that called it.
struct RequestTrace {
  TraceContext own;             // of the request's span; sampled: it is exported
  uint64_t parent_span_id = 0;  // of the client's trace; 0: the trace began here
  std::string state;            // tracestate

  // A sibling: a new span under the same caller.
  RequestTrace Sibling() const;
};

// A step's span, for the workers that run it.
struct StepTrace {
  TraceContext step;  // invalid trace_id: the step is not traced
  std::string state;  // tracestate

  // The span of the call that runs a segment.
  TraceContext Call(uint32_t segment_index) const {
    return {step.trace_id, ChildSpanId(step.span_id, segment_index), step.sampled};
  }
};

// Which traces are exported.  Immutable.
class TraceSampler {
 public:
  // Samples the share `ratio`, in [0, 1], of the traces that begin here.  The caller's flag decides
  // for traces that a caller began.
  explicit TraceSampler(double ratio);
  TraceSampler() = default;  // none

  // Continues a client's trace, or begins one if `parent` is empty or invalid.
  RequestTrace Begin(std::string_view parent, std::string_view state) const;

 private:
  uint64_t threshold_ = 0;  // of 63 bits of the trace's id
};

}  // namespace tandem
