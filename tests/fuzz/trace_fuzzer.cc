// What clients send of traces: a traceparent, and on the next line a tracestate.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "services/common/base/check.h"
#include "services/common/trace/trace_context.h"

using namespace tandem;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t end = all.find('\n');
  const std::string_view parent = all.substr(0, end);
  const std::string_view state = end == std::string_view::npos ? "" : all.substr(end + 1);
  const auto parsed = ParseTraceParent(parent);
  if (parsed.has_value()) {
    // Only parsed values are passed on.
    const std::string again = FormatTraceParent(*parsed);
    TANDEM_CHECK(ParseTraceParent(again) == parsed);
    TANDEM_CHECK(again.substr(2, 51) == parent.substr(2, 51));
  }
  // Goes into headers: nothing may break out of a line.
  const std::string kept = CheckTraceState(state);
  TANDEM_CHECK(kept.size() <= state.size());
  TANDEM_CHECK(CheckTraceState(kept) == kept);
  for (const char c : kept) TANDEM_CHECK(c >= ' ' && c <= '~');
  const RequestTrace trace = TraceSampler(0.5).Begin(parent, state);
  TANDEM_CHECK(trace.own.trace_id.valid() && trace.own.span_id != 0);
  TANDEM_CHECK(!parsed.has_value() || trace.own.trace_id == parsed->trace_id);
  return 0;
}
