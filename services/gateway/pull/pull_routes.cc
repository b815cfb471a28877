#include "services/gateway/pull/pull_routes.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/common/base/logging.h"
#include "services/common/base/mutex.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/api/json.h"
#include "services/gateway/api/json_fields.h"
#include "services/gateway/ollama/ollama_request.h"
#include "services/gateway/pull/pull_jobs.h"

namespace tandem::gateway {
namespace {

using Responder = std::shared_ptr<HttpResponder>;

constexpr char kOff[] =
    "pulling by the API is off: start the server with --http-pull FOLDER, or use `tandem pull` on "
    "its machine";

struct PullRequest {
  std::string model;
  bool stream = true;
};

absl::StatusOr<PullRequest> ParseRequest(const std::string& body) {
  TANDEM_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(body));
  absl::Status error;
  JsonFields fields(json, error);
  PullRequest request;
  const std::string older = fields.String("name").value_or("");
  request.model = fields.String("model").value_or(older);
  request.stream = fields.Bool("stream").value_or(true);
  if (!error.ok()) return error;
  if (request.model.empty()) return absl::InvalidArgumentError("\"model\" is missing");
  return request;
}

bool IsServed(const Launcher& launcher, const std::string& name) {
  const auto model = launcher.model();
  return model.ok() && CheckOllamaName(name, **model).ok();
}

Json ProgressLine(const pull::PullProgress& progress) {
  switch (progress.phase) {
    case pull::PullPhase::kResolving:
      return {{"status", "pulling manifest"}};
    case pull::PullPhase::kVerifying:
      return {{"status", "verifying sha256 digest"}};
    case pull::PullPhase::kDownloading:
      break;
  }
  // Clients tell files apart by their digests.
  const std::string digest = progress.sha256.empty() ? progress.file : progress.sha256;
  return {{"status", "pulling " + digest.substr(0, 12)},
          {"digest", "sha256:" + digest},
          {"total", progress.total_bytes},
          {"completed", progress.done_bytes}};
}

// One client's answer.
class Answer : public PullListener {
 public:
  Answer(Responder responder, bool stream) : responder_(std::move(responder)), stream_(stream) {
    if (stream_) responder_->BeginStream({.content_type = "application/x-ndjson"});
  }
  bool OnProgress(const pull::PullProgress& progress) override {
    if (!stream_) return !responder_->gone();
    // Clients' bars end at the whole.
    if (progress.phase == pull::PullPhase::kVerifying && pulling_.total_bytes > 0) {
      pulling_.done_bytes = pulling_.total_bytes;
      Say(ProgressLine(pulling_));
      pulling_ = {};
    }
    if (progress.phase == pull::PullPhase::kDownloading) pulling_ = progress;
    return Say(ProgressLine(progress));
  }
  void OnEnd(const absl::Status& status) override {
    if (!stream_ || (!status.ok() && !said_)) {
      if (status.ok()) {
        responder_->Send({.body = DumpJson({{"status", "success"}})});
      } else {
        responder_->SendStatus(status);
      }
      return;
    }
    if (status.ok()) {
      Say({{"status", "writing manifest"}});
      Say({{"status", "success"}});
    } else {
      Say({{"error", std::string(ForClients(status).message())}});
    }
    responder_->End();
  }

 private:
  // A line that is like the one before says nothing.
  bool Say(const Json& json) {
    std::string line = DumpJson(json) + "\n";
    if (line == last_) return !responder_->gone();
    said_ = true;
    last_ = line;
    return responder_->Write(line);
  }

  const Responder responder_;
  const bool stream_;
  bool said_ = false;
  pull::PullProgress pulling_;  // the last progress
  std::string last_;
};

// What the handlers share.
struct Pulls {
  explicit Pulls(PullRouteOptions pull_options)
      : options(std::move(pull_options)),
        jobs([this](const pull::ModelName& name, const auto& progress) {
          const auto pulled = pull::Pull(name, options.table, options.how, progress);
          if (pulled.ok() && !pulled->no_encoder_reason.empty()) {
            LogInfo("pulled without a vision encoder",
                    {{"model", name.text}, {"reason", pulled->no_encoder_reason}});
          }
          return pulled.status();
        }) {}
  const PullRouteOptions options;
  PullJobs jobs;
};

absl::Status StartPull(Pulls& pulls, const Launcher& launcher, const HttpRequest& request,
                       const Responder& responder) {
  TANDEM_ASSIGN_OR_RETURN(const PullRequest wanted, ParseRequest(request.body));
  if (IsServed(launcher, wanted.model)) {
    Answer answer(responder, wanted.stream);
    answer.OnProgress({});
    answer.OnEnd(absl::OkStatus());
    return absl::OkStatus();
  }
  if (pulls.options.how.folder.empty()) return absl::PermissionDeniedError(kOff);
  TANDEM_ASSIGN_OR_RETURN(const pull::ModelName name, pull::ParseModelName(wanted.model));
  if (!name.from_hub) TANDEM_RETURN_IF_ERROR(pulls.options.table.Find(name.text).status());
  return pulls.jobs.Start(name, std::make_shared<Answer>(responder, wanted.stream));
}

absl::Status Delete(const Pulls& pulls, const Launcher& launcher, const HttpRequest& request) {
  TANDEM_ASSIGN_OR_RETURN(const PullRequest wanted, ParseRequest(request.body));
  if (pulls.options.how.folder.empty()) return absl::PermissionDeniedError(kOff);
  if (IsServed(launcher, wanted.model)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("model '%s' is being served", ClientText(wanted.model)));
  }
  const auto model =
      pull::FindPulled(wanted.model, pulls.options.table, {pulls.options.how.folder});
  if (absl::IsNotFound(model.status())) {
    return absl::NotFoundError(absl::StrFormat("model '%s' not found", ClientText(wanted.model)));
  }
  TANDEM_RETURN_IF_ERROR(model.status());
  return pull::RemovePulled(*model);
}

}  // namespace

absl::StatusOr<PullRouteOptions> MakePullRouteOptions(const std::string& folder) {
  PullRouteOptions options;
  if (folder.empty()) return options;
  TANDEM_ASSIGN_OR_RETURN(options.table, pull::ModelTable::FromEnvironment());
  TANDEM_ASSIGN_OR_RETURN(options.how,
                          pull::PullOptionsFromEnvironment(folder == "default" ? "" : folder, ""));
  return options;
}

absl::Status AddPullRoutes(HttpRouter& router, const Launcher& launcher, PullRouteOptions options) {
  const auto pulls = std::make_shared<Pulls>(std::move(options));  // shared by the two handlers
  TANDEM_RETURN_IF_ERROR(
      router.Add({.method = "POST",
                  .path_template = "/api/pull",
                  .handler =
                      [pulls, &launcher](const HttpRequest& request, const Responder& responder) {
                        const absl::Status status = StartPull(*pulls, launcher, request, responder);
                        if (!status.ok()) responder->SendStatus(status);
                      },
                  .local = true}));
  return router.Add(
      {.method = "DELETE",
       .path_template = "/api/delete",
       .handler =
           [pulls, &launcher](const HttpRequest& request, const Responder& responder) {
             const absl::Status status = Delete(*pulls, launcher, request);
             if (status.ok()) {
               responder->Send({.body = ""});
             } else {
               responder->SendStatus(status);
             }
           },
       .local = true});
}

}  // namespace tandem::gateway
