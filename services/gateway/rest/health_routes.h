// /health and /ready, for people, load balancers and orchestrators; no API key is asked.
#pragma once

#include "absl/status/status.h"
#include "services/gateway/http/http_router.h"
#include "services/gateway/service/launcher.h"

namespace tandem::gateway {

// Both answer {"status": STATE, "detail", "model", "placement", "placement_notice", "gpu_software",
// "model_notice", "running", "waiting", "api_keys"}, STATE as in GetStatusResponse; gpu_software:
// whether a software driver is in a GPU's place; the last whether other routes ask for a key.  A machine without an NPU is as ready as one with: the notice says where attention
// runs.
//   /health  200 while the engine works or is coming up; 503 when it has failed, or has lost a
//            worker.
//   /ready   200 when requests are taken and answered; 503 otherwise.
// `launcher`: Borrowed; must outlive the router.
absl::Status AddHealthRoutes(HttpRouter& router, const Launcher& launcher, bool api_keys);

}  // namespace tandem::gateway
