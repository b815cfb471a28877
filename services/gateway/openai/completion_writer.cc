#include "services/gateway/openai/completion_writer.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "services/gateway/api/answer_text.h"
#include "services/gateway/api/token_json.h"
#include "services/gateway/openai/openai_error.h"
#include "services/gateway/openai/openai_options.h"
#include "services/gateway/openai/openai_parts.h"

namespace tandem::gateway {
namespace {

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}: lists with an entry for each token.
class CompletionLogprobs {
 public:
  // Adds a token.  `known`: whether its probability is known.
  void Add(const Decision& decision, bool known, const Tokenizer& tokenizer) {
    tokens_.push_back(TokenText(decision.token, tokenizer));
    offsets_.push_back(offset_);
    offset_ += CountCharacters(tokenizer.TokenBytes(decision.token));
    if (!known) {
      logprobs_.push_back(nullptr);
      top_.push_back(nullptr);
      return;
    }
    logprobs_.push_back(FiniteLogprob(decision.logprob));
    Json top = Json::object();
    for (const Alternative& alternative : decision.alternatives) {
      top.emplace(TokenText(alternative.token, tokenizer), FiniteLogprob(alternative.logprob));
    }
    top.emplace(TokenText(decision.token, tokenizer), FiniteLogprob(decision.logprob));
    top_.push_back(std::move(top));
  }

  bool empty() const { return tokens_.empty(); }
  // The tokens added since the last call; offsets continue.
  Json Take() {
    Json json = {{"tokens", std::exchange(tokens_, Json::array())},
                 {"token_logprobs", std::exchange(logprobs_, Json::array())},
                 {"top_logprobs", std::exchange(top_, Json::array())},
                 {"text_offset", std::exchange(offsets_, Json::array())}};
    return json;
  }

 private:
  static size_t CountCharacters(std::string_view bytes) {
    const auto begins = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; };
    return static_cast<size_t>(std::count_if(bytes.begin(), bytes.end(), begins));
  }

  Json tokens_ = Json::array();
  Json logprobs_ = Json::array();
  Json top_ = Json::array();
  Json offsets_ = Json::array();
  size_t offset_ = 0;
};

class CompletionWriter : public AnswerWriter {
 public:
  CompletionWriter(const ServedModel& model, CompletionWriterOptions options)
      : model_(model),
        options_(std::move(options)),
        id_(MakeId("cmpl-")),
        created_(absl::ToUnixSeconds(absl::Now())) {
    for (size_t i = 0; i < options_.num_prompts * options_.num_choices; ++i) {
      choices_.emplace_back(model, options_.ignore_eos);
    }
  }

  bool streams() const override { return options_.stream; }

  void Begin(std::string&) override {}

  void Update(size_t run, const StreamUpdate& update, std::string& out) override {
    Choice& choice = choices_[run];
    std::string text = TakeEcho(run);
    AddPrompt(run, update.prompt_tokens);
    AddTokens(choice, choice.text.Append(update));
    text += update.text;
    if (!options_.stream || (text.empty() && choice.logprobs.empty())) return;
    AppendChunk(run, text, nullptr, out);
  }

  void End(size_t run, const StreamEnd& end, std::string& out) override {
    Choice& choice = choices_[run];
    const size_t num_choices = options_.num_choices;
    usage_.Add(end.usage, /*new_prompt=*/run % num_choices == 0, /*first=*/run == 0);
    choice.reason = FinishReasonName(end.reason);
    AddTokens(choice, choice.text.Finish(end.reason));
    // A run without tokens had no update.
    const std::string text = TakeEcho(run);
    if (options_.stream) AppendChunk(run, text, choice.reason, out);
  }

  void Finish(std::string& out) override {
    if (!options_.stream) {
      out += DumpJson(Whole());
      return;
    }
    if (options_.include_usage) {
      Json last = Head();
      last["choices"] = Json::array();
      last["usage"] = usage_.ToJson();
      last["tandem"] = usage_.ToTandemJson(model_.replicas().placement(), options_.ignored);
      AppendEvent(last, out);
    }
    out += "data: [DONE]\n\n";
  }

  void Fail(const absl::Status& status, std::string& out) override {
    AppendEvent(OpenAiError(status, HttpStatusOf(status.code())), out);
  }

 private:
  struct Choice {
    Choice(const ServedModel& model, bool ignore_eos) : text(model, ignore_eos) {}
    AnswerText text;
    CompletionLogprobs logprobs;  // not sent yet
    bool echoed = false;
    const char* reason = "";
  };

  // The prompt of `run`, the first time.
  std::string TakeEcho(size_t run) {
    Choice& choice = choices_[run];
    if (options_.echoes.empty() || std::exchange(choice.echoed, true)) return "";
    const auto& echo = options_.echoes[run / options_.num_choices];
    if (options_.logprobs && echo.first_token.has_value()) {
      choice.logprobs.Add({.token = *echo.first_token}, /*known=*/false, model_.tokenizer());
    }
    return echo.text;
  }

  void AddPrompt(size_t run, const std::vector<Decision>& tokens) {
    if (!options_.echoes.empty()) AddTokens(choices_[run], tokens);
  }

  void AddTokens(Choice& choice, const std::vector<Decision>& tokens) const {
    if (!options_.logprobs) return;
    for (const Decision& token : tokens) {
      choice.logprobs.Add(token, /*known=*/true, model_.tokenizer());
    }
  }

  Json Head() const {
    return {{"id", id_},
            {"object", "text_completion"},
            {"created", created_},
            {"model", model_.info().name()},
            {"system_fingerprint", SystemFingerprint()}};
  }

  Json ChoiceJson(size_t run, const std::string& text, const char* reason) {
    CompletionLogprobs& logprobs = choices_[run].logprobs;
    const bool none = !options_.logprobs || (options_.stream && logprobs.empty());
    return {{"index", run},
            {"text", text},
            {"logprobs", none ? Json(nullptr) : logprobs.Take()},
            {"finish_reason", reason == nullptr ? Json(nullptr) : Json(reason)}};
  }

  void AppendChunk(size_t run, const std::string& text, const char* reason, std::string& out) {
    Json chunk = Head();
    chunk["choices"] = Json::array();
    chunk["choices"].push_back(ChoiceJson(run, text, reason));
    if (options_.include_usage) chunk["usage"] = nullptr;
    AppendEvent(chunk, out);
  }

  Json Whole() {
    Json body = Head();
    body["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      std::string text;
      if (!options_.echoes.empty()) text = options_.echoes[i / options_.num_choices].text;
      text += choices_[i].text.text();
      body["choices"].push_back(ChoiceJson(i, text, choices_[i].reason));
    }
    body["usage"] = usage_.ToJson();
    body["tandem"] = usage_.ToTandemJson(model_.replicas().placement(), options_.ignored);
    return body;
  }

  const ServedModel& model_;
  const CompletionWriterOptions options_;
  const std::string id_;
  const int64_t created_;
  std::vector<Choice> choices_;
  UsageSum usage_;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeCompletionWriter(const ServedModel& model,
                                                   CompletionWriterOptions options) {
  return std::make_unique<CompletionWriter>(model, std::move(options));
}

}  // namespace tandem::gateway
