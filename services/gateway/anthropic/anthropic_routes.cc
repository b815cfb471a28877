#include "services/gateway/anthropic/anthropic_routes.h"

#include <memory>
#include <utility>

#include "services/common/base/status_macros.h"
#include "services/gateway/anthropic/anthropic_error.h"
#include "services/gateway/anthropic/anthropic_request.h"
#include "services/gateway/api/json.h"

namespace tandem::gateway {
namespace {

using Responder = std::shared_ptr<HttpResponder>;

absl::Status Answer(const HttpRequest& request, const Launcher& launcher,
                    const AnswerRunOptions& options, const Responder& responder) {
  TANDEM_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(request.body));
  TANDEM_ASSIGN_OR_RETURN(const ServedModel* model, launcher.model());
  TANDEM_ASSIGN_OR_RETURN(ApiJob job, MakeMessagesJob(body, *model, request.id));
  job.SetOrigin(Api::kAnthropic, request.trace);
  StartAnswer(*model, std::move(job), request.client, responder, options);
  return absl::OkStatus();
}

absl::StatusOr<size_t> Count(const HttpRequest& request, const Launcher& launcher) {
  TANDEM_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(request.body));
  TANDEM_ASSIGN_OR_RETURN(const ServedModel* model, launcher.model());
  return CountMessageTokens(body, *model);
}

}  // namespace

absl::Status AddAnthropicRoutes(HttpRouter& router, const Launcher& launcher,
                                const AnswerRunOptions& options) {
  const auto answer = [&launcher, options](const HttpRequest& request, const Responder& responder) {
    const absl::Status status = Answer(request, launcher, options, responder);
    if (status.ok()) return;
    launcher.ReportRefused(Api::kAnthropic, status);
    responder->SendStatus(status);
  };
  const auto count = [&launcher](const HttpRequest& request, const Responder& responder) {
    const auto tokens = Count(request, launcher);
    if (tokens.ok()) {
      responder->Send({.body = DumpJson({{"input_tokens", *tokens}})});
    } else {
      responder->SendStatus(tokens.status());
    }
  };
  router.SetErrorFormat("/v1/messages/", FormatAnthropicFailure);
  TANDEM_RETURN_IF_ERROR(router.Add({"POST", "/v1/messages", answer}));
  return router.Add({"POST", "/v1/messages/count_tokens", count});
}

}  // namespace tandem::gateway
