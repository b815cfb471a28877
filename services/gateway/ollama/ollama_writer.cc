#include "services/gateway/ollama/ollama_writer.h"

#include <cmath>
#include <vector>

#include "absl/time/clock.h"
#include "services/gateway/api/answer_text.h"
#include "services/gateway/api/api_error.h"
#include "services/gateway/api/json.h"
#include "services/gateway/api/token_json.h"

namespace tandem::gateway {
namespace {

int64_t Nanoseconds(double seconds) { return std::llround(std::max(seconds, 0.0) * 1e9); }

class OllamaWriter : public AnswerWriter {
 public:
  OllamaWriter(const ServedModel& model, const OllamaWriterOptions& options)
      : model_(model), options_(options), text_(model, /*ignore_eos=*/false) {}

  bool streams() const override { return options_.stream; }
  std::string_view content_type() const override { return "application/x-ndjson"; }
  // A line that is no object would be an error to the clients.
  std::string_view keep_alive() const override { return ""; }

  void Begin(std::string&) override {}

  void Update(size_t, const StreamUpdate& update, std::string& out) override {
    const std::vector<Decision> tokens = text_.Append(update);
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    if (!options_.stream || (update.text.empty() && !(options_.logprobs && !tokens.empty()))) {
      return;
    }
    Json line = Head(update.text);
    line["done"] = false;
    AddLogprobs(tokens, line);
    out += DumpJson(line) + "\n";
  }

  void End(size_t, const StreamEnd& end, std::string&) override {
    rest_ = text_.Finish(end.reason);
    tokens_.insert(tokens_.end(), rest_.begin(), rest_.end());
    end_ = end;
    ended_ = true;
  }

  void Finish(std::string& out) override {
    Json last = Head(options_.stream ? "" : text_.text());
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
  AnswerText text_;
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
