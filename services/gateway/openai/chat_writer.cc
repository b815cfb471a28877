#include "services/gateway/openai/chat_writer.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/gateway/api/answer_text.h"
#include "services/gateway/api/token_json.h"
#include "services/gateway/openai/openai_error.h"
#include "services/gateway/openai/openai_options.h"
#include "services/gateway/openai/openai_parts.h"

namespace tandem::gateway {
namespace {

class ChatWriter : public AnswerWriter {
 public:
  ChatWriter(const ServedModel& model, const ChatWriterOptions& options)
      : model_(model),
        options_(options),
        id_(MakeId("chatcmpl-")),
        created_(absl::ToUnixSeconds(absl::Now())) {
    for (size_t i = 0; i < options.num_choices; ++i) choices_.emplace_back(model, options);
    chunk_head_ = DumpJson(Head("chat.completion.chunk"));
    chunk_head_.pop_back();  // its brace: more members follow
  }

  bool streams() const override { return options_.stream; }

  void Begin(std::string& out) override {
    if (!options_.stream) return;
    for (size_t i = 0; i < choices_.size(); ++i) {
      AppendDelta(i, {{"role", "assistant"}, {"content", ""}, {"refusal", nullptr}}, {}, nullptr,
                  out);
    }
  }

  void Update(size_t run, const StreamUpdate& update, std::string& out) override {
    std::vector<Decision> tokens = choices_[run].text.Append(update);
    if (!options_.stream) return Keep(run, tokens);
    if (update.text.empty() && !(options_.logprobs && !tokens.empty())) return;
    AppendDelta(run, {{"content", update.text}}, tokens, nullptr, out);
  }

  void End(size_t run, const StreamEnd& end, std::string& out) override {
    Choice& choice = choices_[run];
    choice.reason = FinishReasonName(end.reason);
    usage_.Add(end.usage, /*new_prompt=*/run == 0, /*first=*/run == 0);
    const std::vector<Decision> rest = choice.text.Finish(end.reason);
    if (!options_.stream) return Keep(run, rest);
    if (options_.logprobs && !rest.empty()) {
      AppendDelta(run, {{"content", ""}}, rest, nullptr, out);
    }
    AppendDelta(run, Json::object(), {}, choice.reason, out);
  }

  void Finish(std::string& out) override {
    if (!options_.stream) {
      out += DumpJson(Whole());
      return;
    }
    if (options_.include_usage) {
      Json last = Head("chat.completion.chunk");
      last["choices"] = Json::array();
      last["usage"] = usage_.ToJson();
      last["tandem"] = usage_.ToTandemJson(model_.engine().placement(), options_.ignored);
      AppendEvent(last, out);
    }
    out += "data: [DONE]\n\n";
  }

  void Fail(const absl::Status& status, std::string& out) override {
    AppendEvent(OpenAiError(status, HttpStatusOf(status.code())), out);
  }

 private:
  struct Choice {
    Choice(const ServedModel& model, const ChatWriterOptions& options)
        : text(model, options.ignore_eos) {}
    AnswerText text;
    std::vector<Decision> tokens;  // of a whole answer with log-probabilities
    const char* reason = "";
  };

  void Keep(size_t run, const std::vector<Decision>& tokens) {
    if (!options_.logprobs) return;
    std::vector<Decision>& kept = choices_[run].tokens;
    kept.insert(kept.end(), tokens.begin(), tokens.end());
  }

  Json Head(const char* object) const {
    return {{"id", id_},
            {"object", object},
            {"created", created_},
            {"model", model_.info().name()},
            {"system_fingerprint", SystemFingerprint()}};
  }

  Json Logprobs(const std::vector<Decision>& tokens) const {
    if (!options_.logprobs) return nullptr;
    Json content = Json::array();
    for (const Decision& token : tokens) {
      content.push_back(TokenLogprob(token, model_.tokenizer()));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }

  // Once a token: what all chunks have in common is there already, as text.
  void AppendDelta(size_t run, const Json& delta, const std::vector<Decision>& tokens,
                   const char* reason, std::string& out) const {
    absl::StrAppend(&out, "data: ", chunk_head_, R"(,"choices":[{"index":)", run, R"(,"delta":)",
                    DumpJson(delta), R"(,"logprobs":)",
                    tokens.empty() ? "null" : DumpJson(Logprobs(tokens)), R"(,"finish_reason":)",
                    reason == nullptr ? "null" : DumpJson(reason),
                    options_.include_usage ? R"(}],"usage":null})" : "}]}", "\n\n");
  }

  Json Whole() const {
    Json body = Head("chat.completion");
    body["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      body["choices"].push_back({{"index", i},
                                 {"message",
                                  {{"role", "assistant"},
                                   {"content", choices_[i].text.text()},
                                   {"refusal", nullptr},
                                   {"annotations", Json::array()}}},
                                 {"logprobs", Logprobs(choices_[i].tokens)},
                                 {"finish_reason", choices_[i].reason}});
    }
    body["usage"] = usage_.ToJson();
    body["service_tier"] = "default";
    body["tandem"] = usage_.ToTandemJson(model_.engine().placement(), options_.ignored);
    return body;
  }

  const ServedModel& model_;
  const ChatWriterOptions options_;
  const std::string id_;
  const int64_t created_;
  std::string chunk_head_;
  std::vector<Choice> choices_;
  UsageSum usage_;
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeChatWriter(const ServedModel& model,
                                             const ChatWriterOptions& options) {
  return std::make_unique<ChatWriter>(model, options);
}

}  // namespace tandem::gateway
