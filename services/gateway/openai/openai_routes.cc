#include "services/gateway/openai/openai_routes.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/api/json.h"
#include "services/gateway/openai/chat_request.h"
#include "services/gateway/openai/completion_request.h"
#include "services/gateway/openai/embedding_request.h"
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

// All of them, or the one that the path names.
HttpHandler GetsModels(const Launcher& launcher, int64_t created) {
  return [&launcher, created](const HttpRequest& request, const Responder& responder) {
    const auto model = launcher.model();
    const std::string name(request.Variable("model"));
    const absl::Status status = model.ok() ? (*model)->CheckName(name) : model.status();
    if (!status.ok()) {
      responder->SendStatus(status);
      return;
    }
    const Json one = ModelJson(**model, created);
    const Json all = {{"object", "list"}, {"data", Json::array({one})}};
    responder->Send({.body = DumpJson(name.empty() ? all : one)});
  };
}

HttpHandler Embeds(const Launcher& launcher) {
  return [&launcher](const HttpRequest& request, const Responder& responder) {
    const auto answer = [&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(request.body));
      TANDEM_ASSIGN_OR_RETURN(const ServedModel* model, launcher.model());
      TANDEM_ASSIGN_OR_RETURN(EmbedJob job, MakeEmbeddingJob(body, *model, request.id));
      job.SetOrigin(Api::kOpenAi, request.trace);
      StartEmbedding(*model, std::move(job), request.client, responder);
      return absl::OkStatus();
    };
    const absl::Status status = answer();
    if (status.ok()) return;
    launcher.ReportRefused(Api::kOpenAi, status);
    responder->SendStatus(status);
  };
}

}  // namespace

absl::Status AddOpenAiRoutes(HttpRouter& router, const Launcher& launcher,
                             const AnswerRunOptions& options) {
  const int64_t created = absl::ToUnixSeconds(absl::Now());
  HttpRoute routes[] = {
      {"POST", "/v1/chat/completions", Generates(MakeChatJob, launcher, options)},
      {"POST", "/v1/completions", Generates(MakeCompletionJob, launcher, options)},
      {"POST", "/v1/responses", Generates(MakeResponsesJob, launcher, options)},
      {"POST", "/v1/embeddings", Embeds(launcher)},
      {"GET", "/v1/models", GetsModels(launcher, created)},
      {"GET", "/v1/models/{model=**}", GetsModels(launcher, created)},
  };
  for (HttpRoute& route : routes) TANDEM_RETURN_IF_ERROR(router.Add(std::move(route)));
  router.SetErrorFormat("/v1/", FormatOpenAiFailure);
  return absl::OkStatus();
}

}  // namespace tandem::gateway
