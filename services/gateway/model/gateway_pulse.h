// A gateway's reports to the service manager.
#pragma once

#include <vector>

#include "absl/time/time.h"
#include "services/common/systemd/heartbeat.h"
#include "services/common/systemd/progress_watch.h"
#include "services/gateway/model/launcher.h"

namespace tandem::gateway {

// Single-thread.
class GatewayPulse {
 public:
  // `launcher`: Borrowed; must outlive this.  `segment_deadline`: a worker's time for one segment,
  // during which the engine may stand still.
  GatewayPulse(const Launcher& launcher, absl::Duration segment_deadline)
      : launcher_(launcher), segment_deadline_(segment_deadline) {}

  // Serving once requests are answered; alive while every engine turns or segments end.
  Pulse Take(absl::Time now);

 private:
  const Launcher& launcher_;
  const absl::Duration segment_deadline_;
  std::vector<ProgressWatch> watches_;  // by replica with an engine
};

}  // namespace tandem::gateway
