#include "services/gateway/model/gateway_pulse.h"

#include <algorithm>
#include <cstdint>
#include <vector>

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
  const bool software = std::ranges::any_of(status.workers(), [](const v1::WorkerStatus& worker) {
    return worker.kind() == "gpu" && worker.emulated();
  });
  const absl::Duration deadline = software ? software_deadline_ : segment_deadline_;
  const std::vector<uint64_t> progress = launcher_.progress();
  if (watches_.size() < progress.size()) watches_.resize(progress.size());
  for (size_t r = 0; r < progress.size(); ++r) {
    const bool moves = watches_[r].Moves(progress[r], now, deadline + kEnginePatience);
    pulse.alive = pulse.alive && moves;
  }
  pulse.serving = status.state() == "ready";
  pulse.starting = status.state() == "loading";
  pulse.status = pulse.alive ? status.state() : "an engine stands still";
  if (!status.detail().empty()) {
    absl::StrAppendFormat(&pulse.status, ": %s", status.detail());
  } else if (pulse.serving) {
    absl::StrAppendFormat(&pulse.status, ": %s, %s", status.model(), status.placement());
  }
  return pulse;
}

}  // namespace tandem::gateway
