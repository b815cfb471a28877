// /health and /ready, for people, load balancers and orchestrators.  They need no API key.
#pragma once

#include "absl/status/status.h"
#include "services/gateway/http/http_router.h"
#include "services/gateway/model/launcher.h"

namespace tandem::gateway {

// Both answer with a JSON object:
//
//   status            the state, as in GetStatusResponse
//   detail, model, placement, placement_notice, model_notice
//                     as in GetStatusResponse; `detail` without folders
//   gpu_software      whether a software driver stands in for the GPU
//   running, waiting  requests
//   api_keys          whether other routes need a key
//
//   /health  200 while the engine works or starts; 503 after it failed or lost a worker
//   /ready   200 while requests are answered; 503 otherwise
//
// A machine without an NPU is ready too; its placement_notice says where attention runs.
// `launcher`: Borrowed; must outlive the router.
absl::Status AddHealthRoutes(HttpRouter& router, const Launcher& launcher, bool api_keys);

}  // namespace tandem::gateway
