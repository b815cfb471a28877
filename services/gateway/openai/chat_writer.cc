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
#include "services/gateway/tool_calls/answer_reader.h"

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
    chunk_head_.pop_back();  // the closing brace: more members follow
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
    std::vector<Decision> tokens = choices_[run].tokens_of.Append(update);
    const std::vector<AnswerEvent> events = choices_[run].answer.Append(update.text);
    if (!options_.stream) return Keep(run, tokens);
    AppendEvents(run, events, std::move(tokens), out);
  }

  void End(size_t run, const StreamEnd& end, std::string& out) override {
    Choice& choice = choices_[run];
    usage_.Add(end.usage, /*new_prompt=*/run == 0, /*first=*/run == 0);
    std::vector<Decision> rest = choice.tokens_of.Finish(end.reason);
    const std::vector<AnswerEvent> events = choice.answer.Finish();
    choice.reason = FinishReasonName(choice.answer.ReasonOf(end.reason));
    if (!options_.stream) return Keep(run, rest);
    AppendEvents(run, events, std::move(rest), out);
    AppendDelta(run, Json::object(), {}, choice.reason, out);
  }

  void Finish(std::string& out) override {
    if (!options_.stream) {
      AppendWhole(out);
      return;
    }
    if (options_.include_usage) {
      Json last = Head("chat.completion.chunk");
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
    Choice(const ServedModel& model, const ChatWriterOptions& options)
        : tokens_of(model, options.ignore_eos), answer(options.calls) {}
    AnswerText tokens_of;
    AnswerReader answer;
    std::string logprobs;  // of a whole answer, as AppendTokenLogprob lists them
    const char* reason = "";
  };

  void Keep(size_t run, const std::vector<Decision>& tokens) {
    if (!options_.logprobs) return;
    AppendTokenLogprobs(tokens, model_.tokenizer(), choices_[run].logprobs);
  }

  Json Head(const char* object) const {
    return {{"id", id_},
            {"object", object},
            {"created", created_},
            {"model", model_.info().name()},
            {"system_fingerprint", SystemFingerprint()}};
  }

  // Appends the value of a choice's "logprobs".
  static void AppendLogprobs(const std::string& list, std::string& out) {
    absl::StrAppend(&out, R"({"content":[)", list, R"(],"refusal":null})");
  }

  // A delta for each event.  The tokens go with the first; without one they have a delta of their
  // own.
  void AppendEvents(size_t run, const std::vector<AnswerEvent>& events,
                    std::vector<Decision> tokens, std::string& out) const {
    if (!options_.logprobs) tokens.clear();
    for (const AnswerEvent& event : events) {
      const Json delta = DeltaOf(event);
      if (delta.empty()) continue;
      AppendDelta(run, delta, tokens, nullptr, out);
      tokens.clear();
    }
    if (!tokens.empty()) AppendDelta(run, {{"content", ""}}, tokens, nullptr, out);
  }

  // Empty: clients do not hear of it.
  static Json DeltaOf(const AnswerEvent& event) {
    Json call = {{"index", event.call}};
    switch (event.kind) {
      case AnswerEvent::Kind::kText:
        return {{"content", event.text}};
      case AnswerEvent::Kind::kCallBegin:
        call["id"] = event.id;
        call["type"] = "function";
        call["function"] = {{"name", event.name}, {"arguments", ""}};
        break;
      case AnswerEvent::Kind::kCallArguments:
        call["function"] = {{"arguments", event.text}};
        break;
      case AnswerEvent::Kind::kCallEnd:
        return Json::object();
    }
    Json delta = Json::object();
    delta["tool_calls"] = Json::array({std::move(call)});
    return delta;
  }

  static Json MessageOf(const AnswerReader& answer) {
    const bool silent = answer.text().empty() && !answer.calls().empty();
    Json message = {{"role", "assistant"},
                    {"content", silent ? Json(nullptr) : Json(answer.text())},
                    {"refusal", nullptr},
                    {"annotations", Json::array()}};
    for (const v1::ToolCall& call : answer.calls()) {
      message["tool_calls"].push_back(
          {{"id", call.id()},
           {"type", "function"},
           {"function", {{"name", call.name()}, {"arguments", call.arguments_json()}}}});
    }
    return message;
  }

  // Called for each token, so the common part of all chunks is kept as text.
  void AppendDelta(size_t run, const Json& delta, const std::vector<Decision>& tokens,
                   const char* reason, std::string& out) const {
    absl::StrAppend(&out, "data: ", chunk_head_, R"(,"choices":[{"index":)", run, R"(,"delta":)",
                    DumpJson(delta), R"(,"logprobs":)");
    if (tokens.empty()) {
      out += "null";
    } else {
      std::string list;
      AppendTokenLogprobs(tokens, model_.tokenizer(), list);
      AppendLogprobs(list, out);
    }
    absl::StrAppend(&out, R"(,"finish_reason":)", reason == nullptr ? "null" : DumpJson(reason),
                    options_.include_usage ? R"(}],"usage":null})" : "}]}", "\n\n");
  }

  // Log-probabilities are text already; each choice's go as they are copied.
  void AppendWhole(std::string& out) {
    absl::StrAppend(&out, "{", DumpJsonMembers(Head("chat.completion")), R"(,"choices":[)");
    for (size_t i = 0; i < choices_.size(); ++i) {
      const Json first = {{"index", i}, {"message", MessageOf(choices_[i].answer)}};
      absl::StrAppend(&out, i == 0 ? "{" : ",{", DumpJsonMembers(first), R"(,"logprobs":)");
      if (options_.logprobs) {
        AppendLogprobs(std::exchange(choices_[i].logprobs, {}), out);
      } else {
        out += "null";
      }
      absl::StrAppend(&out, R"(,"finish_reason":)", DumpJson(choices_[i].reason), "}");
    }
    const Json last = {
        {"usage", usage_.ToJson()},
        {"service_tier", "default"},
        {"tandem", usage_.ToTandemJson(model_.replicas().placement(), options_.ignored)}};
    absl::StrAppend(&out, "],", DumpJsonMembers(last), "}");
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
