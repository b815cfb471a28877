#include "services/gateway/model/gateway_pulse.h"

#include <optional>

#include "absl/strings/str_format.h"

namespace tandem::gateway {
namespace {

// Beside the worker's time: what the engine does with a step's results, on a busy machine.
constexpr absl::Duration kEnginePatience = absl::Seconds(30);

}  // namespace

Pulse GatewayPulse::Take(absl::Time now) {
  v1::GetStatusResponse status;
  launcher_.FillStatus(status);
  Pulse pulse;
  if (const std::optional<uint64_t> turns = launcher_.turns(); turns.has_value()) {
    uint64_t progress = *turns;
    for (const v1::SegmentStatus& segment : status.segments()) progress += segment.calls();
    pulse.alive = watch_.Moves(progress, now, segment_deadline_ + kEnginePatience);
  }
  pulse.serving = status.state() == "ready";
  pulse.starting = status.state() == "loading";
  pulse.status = pulse.alive ? status.state() : "the engine stands still";
  if (!status.detail().empty()) {
    absl::StrAppendFormat(&pulse.status, ": %s", status.detail());
  } else if (pulse.serving) {
    absl::StrAppendFormat(&pulse.status, ": %s, %s", status.model(), status.placement());
  }
  return pulse;
}

}  // namespace tandem::gateway
