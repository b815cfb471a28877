#include "services/gateway/rest/rest_stream.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/api/answer_run.h"
#include "services/gateway/api/embed_answer.h"
#include "services/gateway/api/json.h"
#include "services/gateway/rest/rest_format.h"
#include "services/gateway/rest/rest_input.h"
#include "services/gateway/service/client_status.h"
#include "services/gateway/service/request_parser.h"
#include "services/gateway/service/response_writer.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {
namespace {

// Once a token, so by hand: {"text", "tokens"} as PrintResponse writes them, which takes some 20
// us.
std::string PlainUpdate(const StreamUpdate& update, const Tokenizer& tokenizer) {
  std::string json = R"({"text":)" + DumpJson(update.text);
  const char* before = R"(,"tokens":[)";
  for (const Decision& decision : update.tokens) {
    absl::StrAppend(&json, before, R"({"id":)", decision.token, R"(,"piece":")",
                    absl::Base64Escape(std::string(tokenizer.TokenBytes(decision.token))), "\"}");
    before = ",";
  }
  return json + (update.tokens.empty() ? "}" : "]}");
}

// Response: v1::GenerateResponse or v1::ChatResponse.
template <class Response>
class StreamWriter final : public AnswerWriter {
 public:
  StreamWriter(const ServedModel& model, const RestBinding& binding, std::string request_id,
               bool with_logprobs, bool events)
      : model_(model),
        binding_(binding),
        request_id_(std::move(request_id)),
        with_logprobs_(with_logprobs),
        events_(events) {}

  bool streams() const override { return true; }
  std::string_view content_type() const override { return RestStreamType(events_); }
  std::string_view keep_alive() const override { return RestKeepAlive(events_); }
  absl::Status TranslateError(const absl::Status& status) const override {
    return ToClientError(status);
  }

  // The first message says where it runs, whatever else it says.
  void Begin(std::string& /*out*/) override {
    response_.set_placement(model_.engine().placement());
    response_.set_request_id(request_id_);
  }
  void Update(size_t /*run*/, const StreamUpdate& update, std::string& out) override {
    if (!with_logprobs_ && update.prompt_tokens.empty() && !update.text.empty() &&
        response_.placement().empty() && binding_.response_body.empty()) {
      return AppendRestMessage(PlainUpdate(update, model_.tokenizer()), events_, out);
    }
    WriteUpdate(update, model_.tokenizer(), with_logprobs_, response_);
    Append(out);
  }
  void End(size_t /*run*/, const StreamEnd& end, std::string& out) override {
    response_.set_finish_reason(end.reason);
    *response_.mutable_usage() = end.usage;
    Append(out);
  }
  void Finish(std::string& /*out*/) override {}
  void Fail(const absl::Status& status, std::string& out) override {
    AppendRestError(TranslateError(status), events_, out);
  }

 private:
  void Append(std::string& out) {
    const auto json = PrintResponse(binding_, response_);
    response_.Clear();
    if (json.ok()) {
      AppendRestMessage(*json, events_, out);
    } else {
      AppendRestError(json.status(), events_, out);
    }
  }

  const ServedModel& model_;
  const RestBinding& binding_;
  const std::string request_id_;
  const bool with_logprobs_;
  const bool events_;
  Response response_;  // the next
};

absl::Status StartEmbed(const Launcher& launcher, const RestBinding& binding,
                        const HttpRequest& http, const std::shared_ptr<HttpResponder>& responder) {
  TANDEM_ASSIGN_OR_RETURN(const RestInput input, ReadRestInput(binding, http));
  const auto& request = dynamic_cast<const v1::EmbedRequest&>(*input.message);
  TANDEM_ASSIGN_OR_RETURN(const ServedModel* model, launcher.model());
  EmbedJob job;
  TANDEM_ASSIGN_OR_RETURN(job.runs, ParseEmbed(request, *model));
  for (EngineRequest& run : job.runs) run.deadline = input.deadline;
  job.to_body = [&binding, model, id = job.runs[0].request_id](
                    const EmbedResult& result) -> absl::StatusOr<std::string> {
    v1::EmbedResponse response;
    response.set_request_id(id);
    WriteEmbeddings(result, response);
    response.set_placement(model->engine().placement());
    return PrintResponse(binding, response);
  };
  job.SetOrigin(Api::kRest, http.trace);
  StartEmbedding(*model, std::move(job), http.client, responder);
  return absl::OkStatus();
}

// `parse`: ParseGenerate or ParseChat.
template <class Request, class Response, auto parse>
absl::Status StartStream(const Launcher& launcher, const RestBinding& binding,
                         const HttpRequest& http, const std::shared_ptr<HttpResponder>& responder) {
  TANDEM_ASSIGN_OR_RETURN(const RestInput input, ReadRestInput(binding, http));
  const auto& request = dynamic_cast<const Request&>(*input.message);
  TANDEM_ASSIGN_OR_RETURN(const ServedModel* model, launcher.model());
  TANDEM_ASSIGN_OR_RETURN(EngineRequest parsed, parse(request, *model));
  parsed.deadline = input.deadline;
  ApiJob job;
  job.writer = std::make_unique<StreamWriter<Response>>(*model, binding, parsed.request_id,
                                                        request.has_logprobs(),
                                                        http.Accepts("text/event-stream"));
  job.runs.push_back(std::move(parsed));
  job.SetOrigin(Api::kRest, http.trace);
  StartAnswer(*model, std::move(job), http.client, responder, {});
  return absl::OkStatus();
}

// `start`: StartEmbed or the like.
template <class Start>
auto Answers(const Launcher& launcher, Start start) {
  return [&launcher, start](const RestBinding& binding, const HttpRequest& request,
                            std::shared_ptr<HttpResponder> responder) {
    absl::Status status = start(launcher, binding, request, responder);
    if (!status.ok()) responder->SendStatus(ToClientError(status));
    return status;
  };
}

}  // namespace

RestStreams EngineStreams(const Launcher& launcher) {
  return {
      {"tandem.v1.Generation.Generate",
       Answers(launcher, StartStream<v1::GenerateRequest, v1::GenerateResponse, ParseGenerate>)},
      {"tandem.v1.Generation.Chat",
       Answers(launcher, StartStream<v1::ChatRequest, v1::ChatResponse, ParseChat>)},
      {"tandem.v1.Generation.Embed", Answers(launcher, StartEmbed)},
  };
}

}  // namespace tandem::gateway
