// The public HTTP port: which APIs are on it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "services/gateway/gateway_flags.h"
#include "services/gateway/handlers/rpc_call.h"
#include "services/gateway/http/http_server.h"
#include "services/gateway/metrics/metrics_page.h"
#include "services/gateway/model/launcher.h"

namespace tandem::gateway {

// Serves health, metrics, the chat page, REST, OpenAI's and Ollama's APIs as `flags` say; null with
// --http=off.  `page`: of /metrics.  `meters.http` counts answers, `sampler`
// chooses which requests are traced.  Keys are asked for where there are `meters.keys`.
// `methods` answer REST's calls.  What they belong to, `launcher` and `meters`: Borrowed; must outlive
// the result.
absl::StatusOr<std::unique_ptr<HttpServer>> StartHttpEdge(const HttpFlags& flags,
                                                          const Launcher& launcher,
                                                          const RpcMethods& methods,
                                                          MetricSource page, GatewayMeters& meters,
                                                          const TraceSampler& sampler);

}  // namespace tandem::gateway
