#include "services/gateway/openai/responses_writer.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "services/gateway/api/answer_text.h"
#include "services/gateway/api/token_json.h"
#include "services/gateway/openai/openai_error.h"
#include "services/gateway/openai/openai_options.h"
#include "services/gateway/openai/openai_parts.h"

namespace tandem::gateway {
namespace {

// 0.95 and not 0.94999998807907104.
double Short(float value) { return std::round(double{value} * 1e6) / 1e6; }

// Events in order: created, in_progress, output_item.added, content_part.added, a delta for each
// piece of text, output_text.done, content_part.done, output_item.done, and completed, incomplete
// or failed.  Each is numbered.
class ResponsesWriter : public AnswerWriter {
 public:
  ResponsesWriter(const ServedModel& model, ResponsesWriterOptions options)
      : model_(model),
        options_(std::move(options)),
        id_(MakeId("resp_")),
        item_id_(MakeId("msg_")),
        created_(absl::ToUnixSeconds(absl::Now())),
        text_(model, /*ignore_eos=*/false) {}

  bool streams() const override { return options_.stream; }

  void Begin(std::string& out) override {
    if (!options_.stream) return;
    Append("response.created", {{"response", Response("in_progress")}}, out);
    Append("response.in_progress", {{"response", Response("in_progress")}}, out);
    Append("response.output_item.added", {{"output_index", 0}, {"item", Item("in_progress")}}, out);
    AppendOfPart("response.content_part.added", {{"part", Part()}}, out);
  }

  void Update(size_t, const StreamUpdate& update, std::string& out) override {
    const std::vector<Decision> tokens = text_.Append(update);
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    if (!options_.stream || (update.text.empty() && !(options_.logprobs && !tokens.empty()))) {
      return;
    }
    AppendOfPart("response.output_text.delta",
                 {{"delta", update.text}, {"logprobs", Logprobs(tokens)}}, out);
  }

  void End(size_t, const StreamEnd& end, std::string& out) override {
    const std::vector<Decision> rest = text_.Finish(end.reason);
    tokens_.insert(tokens_.end(), rest.begin(), rest.end());
    usage_.Add(end.usage, /*new_prompt=*/true, /*first=*/true);
    status_ = end.reason == v1::FINISH_REASON_LENGTH ? "incomplete" : "completed";
    ended_ = true;
    if (!options_.stream) return;
    AppendOfPart("response.output_text.done",
                 {{"text", text_.text()}, {"logprobs", Logprobs(tokens_)}}, out);
    AppendOfPart("response.content_part.done", {{"part", Part()}}, out);
    Append("response.output_item.done", {{"output_index", 0}, {"item", Item(status_)}}, out);
  }

  void Finish(std::string& out) override {
    if (options_.stream) {
      Append("response." + status_, {{"response", Response(status_)}}, out);
    } else {
      out += DumpJson(Response(status_));
    }
  }

  void Fail(const absl::Status& status, std::string& out) override {
    const Json error = OpenAiError(status, HttpStatusOf(status.code()))["error"];
    Append("error",
           {{"code", error["code"]}, {"message", error["message"]}, {"param", error["param"]}},
           out);
  }

 private:
  Json Logprobs(const std::vector<Decision>& tokens) const {
    Json logprobs = Json::array();
    if (!options_.logprobs) return logprobs;
    for (const Decision& token : tokens) {
      logprobs.push_back(TokenLogprob(token, model_.tokenizer()));
    }
    return logprobs;
  }

  Json Part() const {
    return {{"type", "output_text"},
            {"text", text_.text()},
            {"annotations", Json::array()},
            {"logprobs", Logprobs(tokens_)}};
  }

  Json Item(const std::string& status) const {
    Json content = Json::array();
    if (ended_) content.push_back(Part());
    return {{"id", item_id_},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }

  Json Response(const std::string& status) const {
    Json output = Json::array();
    if (ended_) output.push_back(Item(status));
    Json incomplete = nullptr;
    if (status == "incomplete") incomplete = {{"reason", "max_output_tokens"}};
    return {{"id", id_},
            {"object", "response"},
            {"created_at", created_},
            {"status", status},
            {"background", false},
            {"error", nullptr},
            {"incomplete_details", std::move(incomplete)},
            {"instructions", options_.instructions},
            {"max_output_tokens", options_.max_output_tokens},
            {"max_tool_calls", nullptr},
            {"model", model_.info().name()},
            {"output", std::move(output)},
            {"parallel_tool_calls", true},
            {"previous_response_id", nullptr},
            {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
            {"service_tier", "default"},
            {"store", false},
            {"temperature", Short(options_.temperature)},
            {"text", {{"format", {{"type", "text"}}}}},
            {"tool_choice", "auto"},
            {"tools", Json::array()},
            {"top_logprobs", options_.top_logprobs},
            {"top_p", Short(options_.top_p)},
            {"truncation", "disabled"},
            {"usage", ended_ ? usage_.ToResponsesJson() : Json(nullptr)},
            {"user", nullptr},
            {"metadata", options_.metadata},
            {"tandem", ended_ ? usage_.ToTandemJson(model_.engine().placement(), options_.ignored)
                              : Json(nullptr)}};
  }

  void Append(const std::string& type, const Json& fields, std::string& out) {
    Json event = {{"type", type}, {"sequence_number", next_number_++}};
    event.update(fields);
    out += "event: " + type + "\n";
    AppendEvent(event, out);
  }
  void AppendOfPart(const std::string& type, const Json& fields, std::string& out) {
    Json all = {{"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}};
    all.update(fields);
    Append(type, all, out);
  }

  const ServedModel& model_;
  const ResponsesWriterOptions options_;
  const std::string id_;
  const std::string item_id_;
  const int64_t created_;
  AnswerText text_;
  std::vector<Decision> tokens_;
  UsageSum usage_;
  std::string status_ = "in_progress";
  bool ended_ = false;
  uint64_t next_number_ = 0;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeResponsesWriter(const ServedModel& model,
                                                  ResponsesWriterOptions options) {
  return std::make_unique<ResponsesWriter>(model, std::move(options));
}

}  // namespace tandem::gateway
