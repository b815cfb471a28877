// W3C Trace Context: which trace a request belongs to, and which span of it called.
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

namespace tandem::gateway {

// 128 bits at random, never all zero.
struct TraceId {
  uint64_t high = 0;
  uint64_t low = 0;

  bool valid() const { return high != 0 || low != 0; }
  bool operator==(const TraceId&) const = default;
};

// A span as others name it.
struct TraceContext {
  TraceId trace_id;
  uint64_t span_id = 0;
  bool sampled = false;

  bool operator==(const TraceContext&) const = default;
};

// nullopt for what the rules call invalid, and ff, the version that never will be.
std::optional<TraceContext> ParseTraceParent(std::string_view header);
std::string FormatTraceParent(const TraceContext& context);
// 32 and 16 digits.
std::string FormatTraceId(const TraceId& id);
std::string FormatSpanId(uint64_t id);

// Vendors' own list as it came, blanks round its members taken off; empty if any member breaks the
// grammar, one key is there twice, or there are more than 32.
std::string CheckTraceState(std::string_view header);

TraceId RandomTraceId();
uint64_t RandomSpanId();
// The span of `span_id` that is counted `number`: the same wherever it is asked for.
uint64_t ChildSpanId(uint64_t span_id, uint64_t number);

// One request's place: its own span, and what called it.
struct RequestTrace {
  TraceContext own;             // of the request's span; sampled: it is exported
  uint64_t parent_span_id = 0;  // of the client's trace; 0: the trace began here
  std::string state;            // tracestate

  // The same caller's, of a span beside this one.
  RequestTrace Sibling() const;
};

// A step's span, for the workers that run it.
struct StepTrace {
  TraceContext step;  // trace_id not valid: nobody traces
  std::string state;  // tracestate

  // The span of the call that runs a segment.
  TraceContext Call(uint32_t segment_index) const {
    return {step.trace_id, ChildSpanId(step.span_id, segment_index), step.sampled};
  }
};

// Which traces are exported.  Immutable.
class TraceSampler {
 public:
  // Of the traces that begin here, `ratio` in [0, 1]; a caller's flag decides for its own.
  explicit TraceSampler(double ratio);
  TraceSampler() = default;  // none

  // Goes on with a client's trace, or begins one where `parent` is empty or invalid, as the rules
  // have it.
  RequestTrace Begin(std::string_view parent, std::string_view state) const;

 private:
  uint64_t threshold_ = 0;  // of 63 bits of the trace's id
};

}  // namespace tandem::gateway
