#include "services/gateway/openai/openai_routes.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/api/api_error.h"
#include "services/gateway/api/json.h"
#include "services/gateway/openai/chat_request.h"
#include "services/gateway/openai/completion_request.h"
#include "services/gateway/openai/openai_error.h"
#include "services/gateway/openai/responses_request.h"

namespace tandem::gateway {
namespace {

using MakeJob = absl::StatusOr<ApiJob> (*)(const Json& body, const ServedModel& model,
                                           const std::string& request_id);
using Responder = std::shared_ptr<HttpResponder>;

HttpHandler Generates(MakeJob make_job, const Launcher& launcher, const AnswerRunOptions& options) {
  return [make_job, &launcher, options](HttpRequest request, Responder responder) {
    const auto answer = [&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(request.body));
      TANDEM_ASSIGN_OR_RETURN(const ServedModel* model, launcher.model());
      TANDEM_ASSIGN_OR_RETURN(ApiJob job, make_job(body, *model, request.id));
      job.SetOrigin(Api::kOpenAi, request.trace);
      StartAnswer(*model, std::move(job), request.client, responder, options);
      return absl::OkStatus();
    };
    const absl::Status status = answer();
    if (status.ok()) return;
    launcher.ReportRefused(Api::kOpenAi, status);
    responder->SendStatus(status);
  };
}

Json ModelJson(const ServedModel& model, int64_t created) {
  const v1::ModelInfo& info = model.info();
  return {{"id", info.name()},
          {"object", "model"},
          {"created", created},
          {"owned_by", "tandem"},
          {"context_length", info.context_len()},
          {"max_model_len", info.context_len()}};
}

HttpHandler ListsModels(const Launcher& launcher, int64_t created) {
  return [&launcher, created](const HttpRequest&, const Responder& responder) {
    const auto model = launcher.model();
    if (!model.ok()) {
      responder->SendStatus(model.status());
      return;
    }
    const Json list = {{"object", "list"}, {"data", Json::array({ModelJson(**model, created)})}};
    responder->Send({.body = DumpJson(list)});
  };
}

HttpHandler GetsModel(const Launcher& launcher, int64_t created) {
  return [&launcher, created](const HttpRequest& request, const Responder& responder) {
    const auto model = launcher.model();
    const absl::Status status =
        model.ok() ? (*model)->CheckName(std::string(request.Variable("model"))) : model.status();
    if (status.ok()) {
      responder->Send({.body = DumpJson(ModelJson(**model, created))});
    } else {
      responder->SendStatus(status);
    }
  };
}

void RefuseEmbeddings(const HttpRequest&, const Responder& responder) {
  responder->SendStatus(ParamError("model", "unsupported_model",
                                   "model: the models served here answer, they do not make "
                                   "embeddings."));
}

}  // namespace

absl::Status AddOpenAiRoutes(HttpRouter& router, const Launcher& launcher,
                             const AnswerRunOptions& options) {
  const int64_t created = absl::ToUnixSeconds(absl::Now());
  HttpRoute routes[] = {
      {"POST", "/v1/chat/completions", Generates(MakeChatJob, launcher, options)},
      {"POST", "/v1/completions", Generates(MakeCompletionJob, launcher, options)},
      {"POST", "/v1/responses", Generates(MakeResponsesJob, launcher, options)},
      {"POST", "/v1/embeddings", RefuseEmbeddings},
      {"GET", "/v1/models", ListsModels(launcher, created)},
      {"GET", "/v1/models/{model=**}", GetsModel(launcher, created)},
  };
  for (HttpRoute& route : routes) TANDEM_RETURN_IF_ERROR(router.Add(std::move(route)));
  router.SetErrorFormat("/v1/", FormatOpenAiFailure);
  return absl::OkStatus();
}

}  // namespace tandem::gateway
