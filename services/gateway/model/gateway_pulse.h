// A gateway's reports to the service manager.
#pragma once

#include <vector>

#include "absl/time/time.h"
#include "services/common/systemd/heartbeat.h"
#include "services/common/systemd/progress_watch.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/model/launcher.h"

namespace tandem::gateway {

// Single-thread.
class GatewayPulse {
 public:
  // `launcher`: Borrowed; must outlive this.  While a worker has its deadline for a segment, the
  // engine may stand still.
  GatewayPulse(const Launcher& launcher, const ExecutorOptions& options)
      : launcher_(launcher),
        segment_deadline_(options.segment_deadline),
        software_deadline_(options.software_segment_deadline.value_or(options.segment_deadline)) {}

  // Serving once requests are answered; alive while every engine turns or segments end.
  Pulse Take(absl::Time now);

 private:
  const Launcher& launcher_;
  const absl::Duration segment_deadline_, software_deadline_;
  std::vector<ProgressWatch> watches_;  // by replica with an engine
};

}  // namespace tandem::gateway
