#include "services/gateway/openai/responses_writer.h"

#include <cmath>
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

// The shortest decimal form: 0.95, not 0.94999998807907104.
double Short(float value) { return std::round(double{value} * 1e6) / 1e6; }

// Events in order: created, in_progress, those of each item, and completed, incomplete or failed.
// Each is numbered.  A message has output_item.added, content_part.added, an output_text.delta for
// each piece of text, output_text.done, content_part.done, output_item.done; a call has
// output_item.added, function_call_arguments.delta, function_call_arguments.done,
// output_item.done.
class ResponsesWriter : public AnswerWriter {
 public:
  ResponsesWriter(const ServedModel& model, ResponsesWriterOptions options)
      : model_(model),
        options_(std::move(options)),
        id_(MakeId("resp_")),
        created_(absl::ToUnixSeconds(absl::Now())),
        tokens_of_(model, /*ignore_eos=*/false),
        answer_(options_.calls) {}

  bool streams() const override { return options_.stream; }

  void Begin(std::string& out) override {
    AppendResponse("response.created", "in_progress", out);
    AppendResponse("response.in_progress", "in_progress", out);
    if (options_.calls.names.empty()) OpenMessage(out);
  }

  void Update(size_t, const StreamUpdate& update, std::string& out) override {
    Take(answer_.Append(update.text), tokens_of_.Append(update), out);
  }

  void End(size_t, const StreamEnd& end, std::string& out) override {
    usage_.Add(end.usage, /*new_prompt=*/true, /*first=*/true);
    status_ = end.reason == v1::FINISH_REASON_LENGTH ? "incomplete" : "completed";
    Take(answer_.Finish(), tokens_of_.Finish(end.reason), out);
    if (items_.empty()) OpenMessage(out);
    CloseItem(out);
    ended_ = true;
  }

  void Finish(std::string& out) override {
    if (options_.stream) {
      AppendResponse("response." + status_, status_, out);
    } else {
      AddResponse(status_, out);
    }
  }

  void Fail(const absl::Status& status, std::string& out) override {
    const Json error = OpenAiError(status, HttpStatusOf(status.code()))["error"];
    Append("error",
           DumpJsonMembers(
               {{"code", error["code"]}, {"message", error["message"]}, {"param", error["param"]}}),
           out);
  }

 private:
  // A message or a call.
  struct Item {
    std::string id;
    std::string text;      // or the arguments
    std::string logprobs;  // of a message, as AppendTokenLogprob lists them
    std::string call_id;   // empty: a message
    std::string name;
    std::string status = "in_progress";
    bool is_call() const { return !call_id.empty(); }
    bool open() const { return status == "in_progress"; }
  };

  // `tokens` belong to the next text there is; those of calls are not reported.
  void Take(const std::vector<AnswerEvent>& events, const std::vector<Decision>& tokens,
            std::string& out) {
    if (options_.logprobs) held_tokens_.insert(held_tokens_.end(), tokens.begin(), tokens.end());
    for (const AnswerEvent& event : events) {
      switch (event.kind) {
        case AnswerEvent::Kind::kText:
          if (items_.empty() || !items_.back().open()) OpenMessage(out);
          AddText(event.text, out);
          break;
        case AnswerEvent::Kind::kCallBegin:
          CloseItem(out);
          items_.push_back({.id = MakeId("fc_"), .call_id = event.id, .name = event.name});
          AppendOfItem("response.output_item.added", MemberItem(items_.back()), out);
          break;
        case AnswerEvent::Kind::kCallArguments:
          items_.back().text += event.text;
          AppendOfItem("response.function_call_arguments.delta",
                       DumpJsonMembers({{"item_id", items_.back().id}, {"delta", event.text}}),
                       out);
          break;
        case AnswerEvent::Kind::kCallEnd:
          held_tokens_.clear();
          CloseItem(out);
          break;
      }
    }
    const bool in_message = !items_.empty() && items_.back().open() && !items_.back().is_call();
    if (events.empty() && in_message && !held_tokens_.empty()) AddText("", out);
  }

  void OpenMessage(std::string& out) {
    items_.push_back({.id = MakeId("msg_")});
    AppendOfItem("response.output_item.added", MemberItem(items_.back()), out);
    AppendOfPart("response.content_part.added", MemberPart(items_.back()), out);
  }

  void AddText(const std::string& text, std::string& out) {
    Item& item = items_.back();
    item.text += text;
    std::string logprobs;
    AppendTokenLogprobs(held_tokens_, model_.tokenizer(), logprobs);
    held_tokens_.clear();
    if (options_.stream) {
      AppendOfPart("response.output_text.delta",
                   absl::StrCat(DumpJsonMembers({{"delta", text}}), MemberLogprobs(logprobs)), out);
    }
    if (!item.logprobs.empty() && !logprobs.empty()) item.logprobs += ',';
    item.logprobs += logprobs;
  }

  // Closes the last item if it is open.  Before the answer's end it is complete.
  void CloseItem(std::string& out) {
    if (items_.empty() || !items_.back().open()) return;
    Item& item = items_.back();
    item.status = status_ == "in_progress" ? "completed" : status_;
    if (!options_.stream) return;
    if (item.is_call()) {
      AppendOfItem(
          "response.function_call_arguments.done",
          DumpJsonMembers({{"item_id", item.id}, {"name", item.name}, {"arguments", item.text}}),
          out);
    } else {
      AppendOfPart(
          "response.output_text.done",
          absl::StrCat(DumpJsonMembers({{"text", item.text}}), MemberLogprobs(item.logprobs)), out);
      AppendOfPart("response.content_part.done", MemberPart(item), out);
    }
    AppendOfItem("response.output_item.done", MemberItem(item), out);
  }

  // These write JSON as text: log-probabilities are kept as text.
  // With the comma before it.
  static std::string MemberLogprobs(const std::string& list) {
    return absl::StrCat(R"(,"logprobs":[)", list, "]");
  }
  static std::string Part(const Item& item) {
    const Json first = {
        {"type", "output_text"}, {"text", item.text}, {"annotations", Json::array()}};
    return absl::StrCat("{", DumpJsonMembers(first), MemberLogprobs(item.logprobs), "}");
  }
  static std::string MemberPart(const Item& item) { return absl::StrCat(R"("part":)", Part(item)); }
  static std::string ItemText(const Item& item) {
    if (item.is_call()) {
      return DumpJson({{"id", item.id},
                       {"type", "function_call"},
                       {"status", item.status},
                       {"arguments", item.text},
                       {"call_id", item.call_id},
                       {"name", item.name}});
    }
    const Json first = {
        {"id", item.id}, {"type", "message"}, {"status", item.status}, {"role", "assistant"}};
    return absl::StrCat("{", DumpJsonMembers(first), R"(,"content":[)",
                        item.open() ? "" : Part(item), "]}");
  }
  static std::string MemberItem(const Item& item) {
    return absl::StrCat(R"("item":)", ItemText(item));
  }

  void AppendResponse(const std::string& type, const std::string& status, std::string& out) {
    if (!options_.stream) return;
    std::string member = R"("response":)";
    AddResponse(status, member);
    Append(type, member, out);
  }

  // Appends the object.
  void AddResponse(const std::string& status, std::string& out) const {
    Json incomplete = nullptr;
    if (status == "incomplete") incomplete = {{"reason", "max_output_tokens"}};
    const Json first = {{"id", id_},
                        {"object", "response"},
                        {"created_at", created_},
                        {"status", status},
                        {"background", false},
                        {"error", nullptr},
                        {"incomplete_details", std::move(incomplete)},
                        {"instructions", options_.instructions},
                        {"max_output_tokens", options_.max_output_tokens},
                        {"max_tool_calls", nullptr},
                        {"model", model_.info().name()}};
    const Json last = {
        {"parallel_tool_calls", options_.parallel_tool_calls},
        {"previous_response_id", nullptr},
        {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
        {"service_tier", "default"},
        {"store", false},
        {"temperature", Short(options_.temperature)},
        {"text", {{"format", options_.text_format}}},
        {"tool_choice", options_.tool_choice},
        {"tools", options_.tools},
        {"top_logprobs", options_.top_logprobs},
        {"top_p", Short(options_.top_p)},
        {"truncation", "disabled"},
        {"usage", ended_ ? usage_.ToResponsesJson() : Json(nullptr)},
        {"user", nullptr},
        {"metadata", options_.metadata},
        {"tandem", ended_ ? usage_.ToTandemJson(model_.replicas().placement(), options_.ignored)
                          : Json(nullptr)}};
    absl::StrAppend(&out, "{", DumpJsonMembers(first), R"(,"output":[)");
    for (size_t i = 0; ended_ && i < items_.size(); ++i) {
      absl::StrAppend(&out, i == 0 ? "" : ",", ItemText(items_[i]));
    }
    absl::StrAppend(&out, "],", DumpJsonMembers(last), "}");
  }

  // `members`: the event's, as text.
  void Append(const std::string& type, const std::string& members, std::string& out) {
    if (!options_.stream) return;
    absl::StrAppend(&out, "event: ", type, "\ndata: {",
                    DumpJsonMembers({{"type", type}, {"sequence_number", next_number_++}}), ",",
                    members, "}\n\n");
  }
  // Of the last item.
  void AppendOfItem(const std::string& type, const std::string& members, std::string& out) {
    Append(type, absl::StrCat(DumpJsonMembers({{"output_index", items_.size() - 1}}), ",", members),
           out);
  }
  void AppendOfPart(const std::string& type, const std::string& members, std::string& out) {
    const Json place = {
        {"item_id", items_.back().id}, {"output_index", items_.size() - 1}, {"content_index", 0}};
    Append(type, absl::StrCat(DumpJsonMembers(place), ",", members), out);
  }

  const ServedModel& model_;
  const ResponsesWriterOptions options_;
  const std::string id_;
  const int64_t created_;
  AnswerText tokens_of_;
  AnswerReader answer_;
  std::vector<Item> items_;
  std::vector<Decision> held_tokens_;  // of text that is not reported yet
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
