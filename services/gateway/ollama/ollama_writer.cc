#include "services/gateway/ollama/ollama_writer.h"

#include <cmath>
#include <vector>

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
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    AppendLines(answer_.Append(update.text), tokens, out);
  }

  void End(size_t, const StreamEnd& end, std::string& out) override {
    rest_ = tokens_of_.Finish(end.reason);
    tokens_.insert(tokens_.end(), rest_.begin(), rest_.end());
    AppendLines(answer_.Finish(), {}, out);
    end_ = end;
    ended_ = true;
  }

  void Finish(std::string& out) override {
    Json last = Head(options_.stream ? "" : answer_.text());
    if (!options_.stream) {
      for (size_t i = 0; i < answer_.calls().size(); ++i) AddCall(i, last);
    }
    last["done"] = true;
    AddLogprobs(options_.stream ? rest_ : tokens_, last);
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
    out += DumpJson(last) + (options_.stream ? "\n" : "");
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
    AddLogprobs(tokens, line);
    out += DumpJson(line) + "\n";
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

  void AddLogprobs(const std::vector<Decision>& tokens, Json& line) const {
    if (!options_.logprobs || tokens.empty()) return;
    Json logprobs = Json::array();
    for (const Decision& token : tokens) {
      logprobs.push_back(TokenLogprob(token, model_.tokenizer()));
    }
    line["logprobs"] = std::move(logprobs);
  }

  const ServedModel& model_;
  const OllamaWriterOptions options_;
  AnswerText tokens_of_;
  AnswerReader answer_;
  std::vector<Decision> tokens_;  // all of them
  std::vector<Decision> rest_;    // those that came with the end
  StreamEnd end_;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeOllamaWriter(const ServedModel& model,
                                               const OllamaWriterOptions& options) {
  return std::make_unique<OllamaWriter>(model, options);
}

}  // namespace tandem::gateway
