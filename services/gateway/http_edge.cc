#include "services/gateway/http_edge.h"

#include <utility>

#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/version/version.h"
#include "services/gateway/anthropic/anthropic_routes.h"
#include "services/gateway/api/token_routes.h"
#include "services/gateway/llamacpp/llamacpp_routes.h"
#include "services/gateway/ollama/ollama_routes.h"
#include "services/gateway/openai/openai_routes.h"
#include "services/gateway/page/page_routes.h"
#include "services/gateway/pull/pull_routes.h"
#include "services/gateway/rest/health_routes.h"
#include "services/gateway/rest/openapi.h"
#include "services/gateway/rest/rest_routes.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

absl::StatusOr<std::unique_ptr<HttpServer>> StartHttpEdge(const HttpFlags& flags,
                                                          const Launcher& launcher,
                                                          const RpcMethods& methods,
                                                          MetricSource page, GatewayMeters& meters,
                                                          const TraceSampler& sampler) {
  if (flags.server.listen == kHttpOff) return nullptr;
  HttpServerOptions options = flags.server;
  options.traffic = &meters.http;
  options.keys = meters.keys;
  options.sampler = sampler;
  if (flags.api_keys.empty() && !IsLoopback(options.listen)) {
    LogWarning("HTTP is open: whoever reaches it may use the model, without an API key",
               {{"http", options.listen}});
  }
  HttpRouter router;
  TANDEM_RETURN_IF_ERROR(AddHealthRoutes(router, launcher, /*api_keys=*/options.keys != nullptr));
  TANDEM_RETURN_IF_ERROR(AddMetricsRoute(router, std::move(page)));
  TANDEM_RETURN_IF_ERROR(AddPageRoutes(router));
  TANDEM_RETURN_IF_ERROR(AddTokenRoutes(router, launcher));
  TANDEM_RETURN_IF_ERROR(AddOpenAiRoutes(router, launcher));
  TANDEM_RETURN_IF_ERROR(AddAnthropicRoutes(router, launcher));
  TANDEM_RETURN_IF_ERROR(AddLlamaCppRoutes(router, launcher, Version()));
  TANDEM_RETURN_IF_ERROR(AddOllamaRoutes(router, launcher, Version()));
  TANDEM_ASSIGN_OR_RETURN(PullRouteOptions pulls, MakePullRouteOptions(flags.pull_folder));
  TANDEM_RETURN_IF_ERROR(AddPullRoutes(router, launcher, std::move(pulls)));
  const auto& service = *v1::GenerateRequest::descriptor()->file()->service(0);
  TANDEM_RETURN_IF_ERROR(AddRestRoutes(router, service, methods));
  TANDEM_RETURN_IF_ERROR(AddOpenApiRoute(router, service, Version()));
  return HttpServer::Start(options, std::move(router));
}

}  // namespace tandem::gateway
