#include "services/gateway/anthropic/anthropic_writer.h"

#include <algorithm>
#include <utility>

#include "services/gateway/anthropic/anthropic_error.h"
#include "services/gateway/model/request_parser.h"
#include "services/gateway/openai/openai_options.h"
#include "services/gateway/openai/openai_parts.h"
#include "services/gateway/tool_calls/answer_reader.h"

namespace tandem::gateway {
namespace {

// Events in order: message_start, ping, the blocks, message_delta, message_stop; or error.  A block
// has content_block_start, content_block_delta for each piece, content_block_stop.
class AnthropicWriter : public AnswerWriter {
 public:
  AnthropicWriter(const ServedModel& model, AnthropicWriterOptions options)
      : model_(model), options_(std::move(options)), id_(MakeId("msg_")), answer_(options_.calls) {
    usage_.set_prompt_tokens(static_cast<uint32_t>(options_.prompt_tokens));
  }

  bool streams() const override { return options_.stream; }
  std::string_view keep_alive() const override {
    return "event: ping\ndata: {\"type\":\"ping\"}\n\n";
  }

  void Begin(std::string& out) override {
    Append({{"type", "message_start"}, {"message", Message()}}, out);
    Append({{"type", "ping"}}, out);
  }

  void Update(size_t, const StreamUpdate& update, std::string& out) override {
    NoteTail(update);
    Take(answer_.Append(update.text), out);
  }

  void End(size_t, const StreamEnd& end, std::string& out) override {
    Take(answer_.Finish(), out);
    CloseText(out);
    usage_ = end.usage;
    const v1::FinishReason reason = answer_.ReasonOf(end.reason);
    const std::string* stop = reason == v1::FINISH_REASON_STOP ? FoundStop() : nullptr;
    stop_reason_ = reason == v1::FINISH_REASON_LENGTH       ? "max_tokens"
                   : reason == v1::FINISH_REASON_TOOL_CALLS ? "tool_use"
                   : stop != nullptr                        ? "stop_sequence"
                                                            : "end_turn";
    if (stop != nullptr) stop_sequence_ = *stop;
    Append({{"type", "message_delta"},
            {"delta", {{"stop_reason", stop_reason_}, {"stop_sequence", stop_sequence_}}},
            {"usage", Usage()}},
           out);
  }

  void Finish(std::string& out) override {
    if (options_.stream) {
      Append({{"type", "message_stop"}}, out);
    } else {
      out += DumpJson(Message());
    }
  }

  void Fail(const absl::Status& status, std::string& out) override {
    Append(AnthropicError(status, HttpStatusOf(status.code())), out);
  }

 private:
  void Take(const std::vector<AnswerEvent>& events, std::string& out) {
    for (const AnswerEvent& event : events) {
      switch (event.kind) {
        case AnswerEvent::Kind::kText:
          if (!text_open_) {
            text_open_ = true;
            StartBlock({{"type", "text"}, {"text", ""}}, out);
          }
          blocks_.back()["text"].get_ref<std::string&>() += event.text;
          AppendDelta({{"type", "text_delta"}, {"text", event.text}}, out);
          break;
        case AnswerEvent::Kind::kCallBegin:
          CloseText(out);
          StartBlock({{"type", "tool_use"},
                      {"id", event.id},
                      {"name", event.name},
                      {"input", Json::object()}},
                     out);
          break;
        case AnswerEvent::Kind::kCallArguments:
          AppendDelta({{"type", "input_json_delta"}, {"partial_json", event.text}}, out);
          break;
        case AnswerEvent::Kind::kCallEnd: {
          // Arguments that are no object, because the call broke off, are passed on as a text.
          const std::string& arguments = answer_.calls()[event.call].arguments_json();
          const auto object = ParseJsonObject(arguments);
          blocks_.back()["input"] = object.ok() ? *object : Json(arguments);
          StopBlock(out);
          break;
        }
      }
    }
  }

  void StartBlock(Json block, std::string& out) {
    blocks_.push_back(std::move(block));
    Append({{"type", "content_block_start"},
            {"index", blocks_.size() - 1},
            {"content_block", blocks_.back()}},
           out);
  }
  void AppendDelta(const Json& delta, std::string& out) {
    Append({{"type", "content_block_delta"}, {"index", blocks_.size() - 1}, {"delta", delta}}, out);
  }
  void StopBlock(std::string& out) {
    Append({{"type", "content_block_stop"}, {"index", blocks_.size() - 1}}, out);
  }
  void CloseText(std::string& out) {
    if (std::exchange(text_open_, false)) StopBlock(out);
  }

  Json Usage() const {
    return {{"input_tokens", usage_.prompt_tokens() - usage_.cached_tokens()},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", usage_.cached_tokens()},
            {"output_tokens", usage_.completion_tokens()}};
  }

  Json Message() const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model_.info().name()},
            {"content", blocks_},
            {"stop_reason", stop_reason_},
            {"stop_sequence", stop_sequence_},
            {"usage", Usage()}};
  }

  // The end of what the tokens spell, which goes on where the text ends before a stop text.
  void NoteTail(const StreamUpdate& update) {
    for (const Decision& decision : update.tokens) {
      const std::string_view bytes = model_.tokenizer().TokenBytes(decision.token);
      tail_ += bytes;
      last_token_bytes_ = bytes.size();
    }
    const size_t most = kMaxStopBytes + last_token_bytes_;
    if (tail_.size() > most) tail_.erase(0, tail_.size() - most);
  }
  // The longest stop text that the last token completed; null: none.
  const std::string* FoundStop() const {
    const std::string* found = nullptr;
    for (const std::string& stop : options_.stops) {
      const size_t at = tail_.rfind(stop);
      if (at == std::string::npos || at + stop.size() + last_token_bytes_ <= tail_.size()) continue;
      if (found == nullptr || stop.size() > found->size()) found = &stop;
    }
    return found;
  }

  void Append(const Json& event, std::string& out) const {
    if (!options_.stream) return;
    out += "event: " + event["type"].get<std::string>() + "\n";
    AppendEvent(event, out);
  }

  const ServedModel& model_;
  const AnthropicWriterOptions options_;
  const std::string id_;
  AnswerReader answer_;
  Json blocks_ = Json::array();
  bool text_open_ = false;
  std::string tail_;
  size_t last_token_bytes_ = 0;
  v1::Usage usage_;
  Json stop_reason_;    // null until the end
  Json stop_sequence_;  // null: another reason
};

}  // namespace

std::unique_ptr<AnswerWriter> MakeAnthropicWriter(const ServedModel& model,
                                                  AnthropicWriterOptions options) {
  return std::make_unique<AnthropicWriter>(model, std::move(options));
}

}  // namespace tandem::gateway
