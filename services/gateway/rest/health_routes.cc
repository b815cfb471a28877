#include "services/gateway/rest/health_routes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway {
namespace {

// Whether a software driver is in a GPU's place.
bool GpuIsSoftware(const v1::GetStatusResponse& status) {
  return std::ranges::any_of(status.workers(), [](const v1::WorkerStatus& worker) {
    return worker.kind() == "gpu" && worker.emulated();
  });
}

HttpResponse Report(const v1::GetStatusResponse& status, bool good, bool api_keys) {
  const nlohmann::json body = {{"status", status.state()},
                               {"detail", WithoutFolders(status.detail())},
                               {"model", status.model()},
                               {"placement", status.placement()},
                               {"placement_notice", status.placement_notice()},
                               {"gpu_software", GpuIsSoftware(status)},
                               {"model_notice", status.model_notice()},
                               {"running", status.scheduler().running()},
                               {"waiting", status.scheduler().waiting()},
                               {"api_keys", api_keys}};
  HttpResponse response{.status = good ? 200 : 503, .body = body.dump()};
  response.headers.emplace_back("Cache-Control", "no-store");
  if (!good) response.headers.emplace_back("Retry-After", "1");
  return response;
}

}  // namespace

absl::Status AddHealthRoutes(HttpRouter& router, const Launcher& launcher, bool api_keys) {
  const auto add = [&](const char* path, bool (*good)(const std::string& state)) {
    return router.Add({.method = "GET",
                       .path_template = path,
                       .handler =
                           [&launcher, good, api_keys](const HttpRequest&, const auto& responder) {
                             v1::GetStatusResponse status;
                             launcher.FillStatus(status);
                             responder->Send(Report(status, good(status.state()), api_keys));
                           },
                       .open = true});
  };
  TANDEM_RETURN_IF_ERROR(add("/health", [](const std::string& state) {
    return state != "failed" && state != "recovering";
  }));
  return add("/ready", [](const std::string& state) { return state == "ready"; });
}

}  // namespace tandem::gateway
