// How long a service that ended may be away: what restarts it and what waits for it agree on this.
#pragma once

#include "absl/time/time.h"

namespace tandem {

// Between two starts of a service that keeps ending.
inline const absl::Duration kOpenCircuitDelay = absl::Seconds(30);
// What a start may take: the device, its pipelines, its self-test.
inline const absl::Duration kServiceStartTime = absl::Seconds(30);
// So a request that runs waits this long for a worker that is lost.
inline const absl::Duration kWorkerWait = kOpenCircuitDelay + kServiceStartTime;

}  // namespace tandem
