#include "services/gateway/openai/completion_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/gateway/api/answer_text.h"
#include "services/gateway/api/token_json.h"
#include "services/gateway/openai/openai_error.h"
#include "services/gateway/openai/openai_options.h"
#include "services/gateway/openai/openai_parts.h"

namespace tandem::gateway {
namespace {

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}: lists with an entry for each token,
// kept as text.
class CompletionLogprobs {
 public:
  // Adds a token.  `known`: whether its probability is known.
  void Add(const Decision& decision, bool known, const Tokenizer& tokenizer) {
    const std::string text = TokenText(decision.token, tokenizer);
    Append(tokens_, DumpJson(text));
    Append(offsets_, absl::StrCat(offset_));
    offset_ += CountCharacters(tokenizer.TokenBytes(decision.token));
    if (!known) {
      Append(logprobs_, "null");
      Append(top_, "null");
      return;
    }
    Append(logprobs_, DumpJson(FiniteLogprob(decision.logprob)));
    Json top = Json::object();
    for (const Alternative& alternative : decision.alternatives) {
      top.emplace(TokenText(alternative.token, tokenizer), FiniteLogprob(alternative.logprob));
    }
    top.emplace(text, FiniteLogprob(decision.logprob));
    Append(top_, DumpJson(top));
  }

  bool empty() const { return tokens_.empty(); }
  // Appends the tokens added since the last call; offsets continue.
  void Take(std::string& out) {
    absl::StrAppend(&out, R"({"tokens":[)", tokens_, R"(],"token_logprobs":[)", logprobs_,
                    R"(],"top_logprobs":[)", top_, R"(],"text_offset":[)", offsets_, "]}");
    for (std::string* list : {&tokens_, &logprobs_, &top_, &offsets_}) std::string().swap(*list);
  }

 private:
  static void Append(std::string& list, std::string_view element) {
    if (!list.empty()) list += ',';
    list += element;
  }
  static size_t CountCharacters(std::string_view bytes) {
    const auto begins = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; };
    return static_cast<size_t>(std::count_if(bytes.begin(), bytes.end(), begins));
  }

  std::string tokens_;
  std::string logprobs_;
  std::string top_;
  std::string offsets_;
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
      AppendWhole(out);
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

  void AppendChoice(size_t run, const std::string& text, const char* reason, std::string& out) {
    CompletionLogprobs& logprobs = choices_[run].logprobs;
    const bool none = !options_.logprobs || (options_.stream && logprobs.empty());
    absl::StrAppend(&out, R"({"index":)", run, R"(,"text":)", DumpJson(text), R"(,"logprobs":)");
    if (none) {
      out += "null";
    } else {
      logprobs.Take(out);
    }
    absl::StrAppend(&out, R"(,"finish_reason":)", reason == nullptr ? "null" : DumpJson(reason),
                    "}");
  }

  void AppendChunk(size_t run, const std::string& text, const char* reason, std::string& out) {
    absl::StrAppend(&out, "data: {", DumpJsonMembers(Head()), R"(,"choices":[)");
    AppendChoice(run, text, reason, out);
    out += options_.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n";
  }

  void AppendWhole(std::string& out) {
    absl::StrAppend(&out, "{", DumpJsonMembers(Head()), R"(,"choices":[)");
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (i > 0) out += ',';
      std::string text;
      if (!options_.echoes.empty()) text = options_.echoes[i / options_.num_choices].text;
      text += choices_[i].text.text();
      AppendChoice(i, text, choices_[i].reason, out);
    }
    const Json last = {
        {"usage", usage_.ToJson()},
        {"tandem", usage_.ToTandemJson(model_.replicas().placement(), options_.ignored)}};
    absl::StrAppend(&out, "],", DumpJsonMembers(last), "}");
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
