#include "services/gateway/ollama/ollama_routes.h"

#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/api/api_error.h"
#include "services/gateway/api/json.h"
#include "services/gateway/api/json_fields.h"
#include "services/gateway/ollama/ollama_embed.h"
#include "services/gateway/ollama/ollama_model.h"
#include "services/gateway/ollama/ollama_request.h"

namespace tandem::gateway {
namespace {

using MakeJob = absl::StatusOr<ApiJob> (*)(const Json& body, const ServedModel& model,
                                           const std::string& request_id);
using Responder = std::shared_ptr<HttpResponder>;

HttpResponse FormatFailure(const HttpFailure& failure) {
  return {.status = failure.http_status,
          .body = DumpJson({{"error", ErrorMessage(failure.status)}})};
}

HttpHandler Generates(MakeJob make_job, const Launcher& launcher, const AnswerRunOptions& options) {
  return [make_job, &launcher, options](const HttpRequest& request, const Responder& responder) {
    const auto answer = [&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(request.body));
      TANDEM_ASSIGN_OR_RETURN(const ServedModel* model, launcher.model());
      TANDEM_ASSIGN_OR_RETURN(ApiJob job, make_job(body, *model, request.id));
      TANDEM_RETURN_IF_ERROR(
          BoundLogprobs(job.logprobs, model->replicas().max_sequence_len(), job.runs));
      job.SetOrigin(Api::kOllama, request.trace);
      StartAnswer(*model, std::move(job), request.client, responder, options);
      return absl::OkStatus();
    };
    const absl::Status status = answer();
    if (status.ok()) return;
    launcher.ReportRefused(Api::kOllama, status);
    responder->SendStatus(status);
  };
}

using MakeEmbeds = absl::StatusOr<EmbedJob> (*)(const Json& body, const ServedModel& model,
                                                const std::string& request_id);

HttpHandler Embeds(MakeEmbeds make_job, const Launcher& launcher) {
  return [make_job, &launcher](const HttpRequest& request, const Responder& responder) {
    const auto answer = [&]() -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(request.body));
      TANDEM_ASSIGN_OR_RETURN(const ServedModel* model, launcher.model());
      TANDEM_ASSIGN_OR_RETURN(EmbedJob job, make_job(body, *model, request.id));
      job.SetOrigin(Api::kOllama, request.trace);
      StartEmbedding(*model, std::move(job), request.client, responder);
      return absl::OkStatus();
    };
    const absl::Status status = answer();
    if (status.ok()) return;
    launcher.ReportRefused(Api::kOllama, status);
    responder->SendStatus(status);
  };
}

// Answers with the body that `describe` builds from the model.
template <class Describe>
HttpHandler Describes(const Launcher& launcher, Describe describe) {
  return [&launcher, describe](const HttpRequest& request, const Responder& responder) {
    const auto model = launcher.model();
    if (!model.ok()) {
      responder->SendStatus(model.status());
      return;
    }
    const absl::StatusOr<Json> json = describe(**model, request);
    if (json.ok()) {
      responder->Send({.body = DumpJson(*json)});
    } else {
      responder->SendStatus(json.status());
    }
  };
}

absl::StatusOr<Json> Show(const ServedModel& model, const HttpRequest& request,
                          absl::Time started) {
  TANDEM_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(request.body));
  absl::Status error;
  JsonFields fields(body, error);
  const std::string older = fields.String("name").value_or("");
  const std::string name = fields.String("model").value_or(older);
  if (!error.ok()) return error;
  TANDEM_RETURN_IF_ERROR(CheckOllamaName(name, model));
  return OllamaShow(model, started);
}

}  // namespace

absl::Status AddOllamaRoutes(HttpRouter& router, const Launcher& launcher,
                             const std::string& version, const AnswerRunOptions& options) {
  const absl::Time started = absl::Now();
  const auto tags = [started](const ServedModel& model, const HttpRequest&) {
    return absl::StatusOr<Json>(Json{{"models", OllamaTags(model, started)}});
  };
  const auto processes = [started](const ServedModel& model, const HttpRequest&) {
    return absl::StatusOr<Json>(Json{{"models", Json::array({OllamaProcess(model, started)})}});
  };
  const auto show = [started](const ServedModel& model, const HttpRequest& request) {
    return Show(model, request, started);
  };
  HttpRoute routes[] = {
      {"POST", "/api/chat", Generates(MakeOllamaChatJob, launcher, options)},
      {"POST", "/api/generate", Generates(MakeOllamaGenerateJob, launcher, options)},
      {"POST", "/api/embed", Embeds(MakeOllamaEmbedJob, launcher)},
      {"POST", "/api/embeddings", Embeds(MakeOllamaEmbeddingsJob, launcher)},
      {"GET", "/api/tags", Describes(launcher, tags)},
      {"GET", "/api/ps", Describes(launcher, processes)},
      {"POST", "/api/show", Describes(launcher, show)},
      {"GET", "/api/version",
       [version](const HttpRequest&, const Responder& responder) {
         responder->Send({.body = DumpJson({{"version", kOllamaVersion}, {"tandem", version}})});
       }},
  };
  for (HttpRoute& route : routes) TANDEM_RETURN_IF_ERROR(router.Add(std::move(route)));
  router.SetErrorFormat("/api/", FormatFailure);
  return absl::OkStatus();
}

}  // namespace tandem::gateway
