#include "services/gateway/llamacpp/llamacpp_routes.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/common/base/status_macros.h"
#include "services/gateway/api/image_members.h"
#include "services/gateway/api/json.h"
#include "services/gateway/api/json_fields.h"
#include "services/gateway/api/token_routes.h"
#include "services/gateway/llamacpp/server_state.h"
#include "services/gateway/model/request_parser.h"
#include "services/gateway/openai/chat_messages.h"
#include "services/gateway/openai/openai_options.h"
#include "services/gateway/openai/tool_fields.h"
#include "services/gateway/tokenizer/chat_template.h"
#include "services/gateway/tool_calls/tool_messages.h"

namespace tandem::gateway {
namespace {

using Responder = std::shared_ptr<HttpResponder>;

v1::SchedulerStatus SchedulerOf(const Launcher& launcher) {
  v1::GetStatusResponse status;
  launcher.FillStatus(status);
  return status.scheduler();
}

// Answers with the body that `make` builds from the request and the model.
template <class Make>
HttpHandler Answers(const Launcher& launcher, Make make) {
  return [&launcher, make](const HttpRequest& request, const Responder& responder) {
    const auto answer = [&]() -> absl::StatusOr<Json> {
      TANDEM_ASSIGN_OR_RETURN(const ServedModel* model, launcher.model());
      return make(request, *model);
    };
    const absl::StatusOr<Json> json = answer();
    if (json.ok()) {
      responder->Send({.body = DumpJson(*json), .headers = {{"Cache-Control", "no-store"}}});
    } else {
      responder->SendStatus(json.status());
    }
  };
}

absl::StatusOr<Json> ApplyTemplate(const HttpRequest& http, const ServedModel& model) {
  TANDEM_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(http.body));
  absl::Status error;
  JsonFields fields(body, error);
  CheckModel(fields, model);
  v1::ChatRequest request;
  PictureUrls urls = PictureUrlsOf(model);
  ReadMessages(fields, "messages", urls, request);
  IgnoredMembers ignored;
  ReadTools(fields, "function", request, ignored);
  fields.RefuseUnless("add_generation_prompt", true,
                      "this server always adds the generation prompt.");
  if (!error.ok()) return error;
  const auto parsed = ParseChatWithUrls(request, model, urls);
  if (!parsed.ok()) return NamePrompt(parsed.status(), "messages");
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Message> messages,
                          MessagesOf(request, model.tool_format()));
  TANDEM_ASSIGN_OR_RETURN(std::string prompt, RenderChatText(messages));
  return Json{{"prompt", std::move(prompt)}, {"tokens", parsed->prompt}};
}

}  // namespace

absl::Status AddLlamaCppRoutes(HttpRouter& router, const Launcher& launcher,
                               const std::string& version) {
  const auto props = [&launcher, version](const HttpRequest&, const ServedModel& model) {
    return absl::StatusOr<Json>(LlamaCppProps(model, SchedulerOf(launcher), version));
  };
  const auto slots = [&launcher](const HttpRequest& request,
                                 const ServedModel& model) -> absl::StatusOr<Json> {
    const v1::SchedulerStatus scheduler = SchedulerOf(launcher);
    const bool must_be_free = request.query.find("fail_on_no_slot=1") != std::string::npos;
    if (must_be_free && !HasFreeSlot(scheduler)) {
      return absl::UnavailableError("no slot available: all places are taken");
    }
    return LlamaCppSlots(model, scheduler);
  };
  const auto health = [&launcher](const HttpRequest&, const Responder& responder) {
    v1::GetStatusResponse status;
    launcher.FillStatus(status);
    if (status.state() == "ready") {
      responder->Send({.body = DumpJson({{"status", "ok"}})});
    } else {
      responder->SendStatus(absl::UnavailableError("the model is not ready: " + status.state()));
    }
  };
  HttpRoute routes[] = {
      {"GET", "/props", Answers(launcher, props)},
      {"GET", "/slots", Answers(launcher, slots)},
      {"POST", "/apply-template", Answers(launcher, ApplyTemplate)},
      {.method = "GET", .path_template = "/v1/health", .handler = health, .open = true},
  };
  for (HttpRoute& route : routes) {
    const std::string path = route.path_template;
    TANDEM_RETURN_IF_ERROR(router.Add(std::move(route)));
    if (path != "/v1/health") router.SetErrorFormat(path, FormatLlamaCppFailure);
  }
  return absl::OkStatus();
}

}  // namespace tandem::gateway
