#include "services/gateway/ollama/ollama_writer.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/gateway/api/answer_text.h"
#include "services/gateway/api/api_error.h"
#include "services/gateway/api/json.h"
#include "services/gateway/api/token_json.h"
#include "services/gateway/tool_calls/answer_reader.h"

namespace tandem::gateway {
namespace {

int64_t Nanoseconds(double seconds) { return std::llround(std::max(seconds, 0.0) * 1e9); }

class OllamaWriter : public AnswerWriter {
 public:
  OllamaWriter(const ServedModel& model, const OllamaWriterOptions& options)
      : model_(model),
        options_(options),
        tokens_of_(model, /*ignore_eos=*/false),
        answer_(options.calls) {}

  bool streams() const override { return options_.stream; }
  std::string_view content_type() const override { return "application/x-ndjson"; }
  // Each line must be an object: clients fail on anything else.
  std::string_view keep_alive() const override { return ""; }

  void Begin(std::string&) override {}

  void Update(size_t, const StreamUpdate& update, std::string& out) override {
    const std::vector<Decision> tokens = tokens_of_.Append(update);
    if (!options_.stream) AddLogprobs(tokens);
    AppendLines(answer_.Append(update.text), tokens, out);
  }

  void End(size_t, const StreamEnd& end, std::string& out) override {
    AddLogprobs(tokens_of_.Finish(end.reason));
    AppendLines(answer_.Finish(), {}, out);
    end_ = end;
    ended_ = true;
  }

  void Finish(std::string& out) override {
    Json first = Head(options_.stream ? "" : answer_.text());
    if (!options_.stream) {
      for (size_t i = 0; i < answer_.calls().size(); ++i) AddCall(i, first);
    }
    first["done"] = true;
    Json last = Json::object();
    if (ended_) {
      const v1::Usage& usage = end_.usage;
      last["done_reason"] = end_.reason == v1::FINISH_REASON_LENGTH ? "length" : "stop";
      last["total_duration"] = Nanoseconds(usage.total_seconds());
      last["load_duration"] = Nanoseconds(usage.queue_seconds());
      last["prompt_eval_count"] = usage.prompt_tokens();
      last["prompt_eval_duration"] =
          Nanoseconds(usage.first_token_seconds() - usage.queue_seconds());
      last["eval_count"] = usage.completion_tokens();
      last["eval_duration"] = Nanoseconds(usage.total_seconds() - usage.first_token_seconds());
    } else {
      last["done_reason"] = "load";
    }
    absl::StrAppend(&out, "{", DumpJsonMembers(first));
    AppendLogprobs(logprobs_, out);
    absl::StrAppend(&out, ",", DumpJsonMembers(last), options_.stream ? "}\n" : "}");
  }

  void Fail(const absl::Status& status, std::string& out) override {
    out += DumpJson({{"error", ErrorMessage(status)}}) + "\n";
  }

 private:
  Json Head(const std::string& text) const {
    Json line = {
        {"model", options_.model},
        {"created_at", absl::FormatTime("%Y-%m-%dT%H:%M:%E9SZ", absl::Now(), absl::UTCTimeZone())}};
    if (options_.chat) {
      line["message"] = {{"role", "assistant"}, {"content", text}};
    } else {
      line["response"] = text;
    }
    return line;
  }

  // A line for each piece of text and each whole call.
  void AppendLines(const std::vector<AnswerEvent>& events, std::vector<Decision> tokens,
                   std::string& out) {
    if (!options_.stream) return;
    if (!options_.logprobs) tokens.clear();
    bool written = false;
    for (const AnswerEvent& event : events) {
      const bool call = event.kind == AnswerEvent::Kind::kCallEnd;
      if (!call && event.kind != AnswerEvent::Kind::kText) continue;
      Json line = Head(call ? "" : event.text);
      if (call) AddCall(event.call, line);
      AppendLine(std::move(line), tokens, out);
      tokens.clear();
      written = true;
    }
    if (!written && !tokens.empty()) AppendLine(Head(""), tokens, out);
  }

  void AppendLine(Json line, const std::vector<Decision>& tokens, std::string& out) const {
    line["done"] = false;
    std::string logprobs;
    AppendTokenLogprobs(tokens, model_.tokenizer(), logprobs);
    absl::StrAppend(&out, "{", DumpJsonMembers(line));
    AppendLogprobs(logprobs, out);
    out += "}\n";
  }

  // Arguments that are no object, because the call broke off, are passed on as a text.
  void AddCall(size_t i, Json& line) const {
    const v1::ToolCall& call = answer_.calls()[i];
    const auto arguments = ParseJsonObject(call.arguments_json());
    line["message"]["tool_calls"].push_back(
        {{"id", call.id()},
         {"function",
          {{"index", i},
           {"name", call.name()},
           {"arguments", arguments.ok() ? *arguments : Json(call.arguments_json())}}}});
  }

  // For the last line.
  void AddLogprobs(const std::vector<Decision>& tokens) {
    if (options_.logprobs) AppendTokenLogprobs(tokens, model_.tokenizer(), logprobs_);
  }

  // The member of a line, if there are any.
  static void AppendLogprobs(const std::string& list, std::string& out) {
    if (!list.empty()) absl::StrAppend(&out, R"(,"logprobs":[)", list, "]");
  }

  const ServedModel& model_;
  const OllamaWriterOptions options_;
  AnswerText tokens_of_;
  AnswerReader answer_;
  std::string logprobs_;  // of a whole answer; of a stream, those that came with the end
  StreamEnd end_;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeOllamaWriter(const ServedModel& model,
                                               const OllamaWriterOptions& options) {
  return std::make_unique<OllamaWriter>(model, options);
}

}  // namespace tandem::gateway
