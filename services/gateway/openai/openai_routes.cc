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
      TANDEM_RETURN_IF_ERROR(
          BoundLogprobs(job.logprobs, model->replicas().max_sequence_len(), job.runs));
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

// `id`: the model's name or an alias.  "root" is vLLM's, "meta" is from llama.cpp's server.
Json ModelJson(const ServedModel& model, const std::string& id, int64_t created) {
  const v1::ModelInfo& info = model.info();
  return {{"id", id},
          {"object", "model"},
          {"created", created},
          {"owned_by", "tandem"},
          {"root", info.name()},
          {"context_length", info.context_len()},
          {"max_model_len", info.context_len()},
          {"meta",
           {{"n_ctx_train", model.config().context_len},
            {"n_vocab", info.vocab_size()},
            {"n_embd", model.config().hidden_dim},
            {"n_params", info.parameters()},
            {"size", info.weight_bytes()}}}};
}

// All names of the model, or only the name in the path.
HttpHandler GetsModels(const Launcher& launcher, int64_t created) {
  return [&launcher, created](const HttpRequest& request, const Responder& responder) {
    const auto answer = [&]() -> absl::StatusOr<Json> {
      TANDEM_ASSIGN_OR_RETURN(const ServedModel* model, launcher.model());
      const ModelNames& names = model->names();
      if (const std::string_view name = request.Variable("model"); !name.empty()) {
        TANDEM_ASSIGN_OR_RETURN(const std::string id, names.Resolve(name));
        return ModelJson(*model, id, created);
      }
      Json all = Json::array();
      for (const std::string& id : names.listed()) all.push_back(ModelJson(*model, id, created));
      return Json{{"object", "list"}, {"data", std::move(all)}};
    };
    const absl::StatusOr<Json> json = answer();
    if (json.ok()) {
      responder->Send({.body = DumpJson(*json)});
    } else {
      responder->SendStatus(json.status());
    }
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
