#include "services/gateway/tool_calls/answer_reader.h"

#include <algorithm>

#include "services/gateway/tool_calls/functiongemma_parser.h"

namespace tandem::gateway {

AnswerReader::AnswerReader(CallOptions options) {
  if (options.format == ToolFormat::kFunctionGemma && !options.names.empty()) {
    parser_ = std::make_unique<FunctionGemmaParser>(std::move(options));
  } else {
    parser_ = std::make_unique<CallParser>(std::move(options));
  }
}

std::vector<AnswerEvent> AnswerReader::Append(std::string_view piece) {
  std::vector<AnswerEvent> events;
  parser_->Append(piece, events);
  return Note(std::move(events));
}

std::vector<AnswerEvent> AnswerReader::Finish() {
  std::vector<AnswerEvent> events;
  parser_->Finish(events);
  broken_off_ = std::ranges::any_of(
      events, [](const AnswerEvent& event) { return event.kind == AnswerEvent::Kind::kCallEnd; });
  return Note(std::move(events));
}

std::vector<AnswerEvent> AnswerReader::Note(std::vector<AnswerEvent> events) {
  for (const AnswerEvent& event : events) {
    switch (event.kind) {
      case AnswerEvent::Kind::kText:
        text_ += event.text;
        break;
      case AnswerEvent::Kind::kCallBegin:
        calls_.emplace_back();
        calls_.back().set_id(event.id);
        calls_.back().set_name(event.name);
        break;
      case AnswerEvent::Kind::kCallArguments:
        calls_[event.call].mutable_arguments_json()->append(event.text);
        break;
      case AnswerEvent::Kind::kCallEnd:
        break;
    }
  }
  return events;
}

v1::FinishReason AnswerReader::ReasonOf(v1::FinishReason reason) const {
  const bool called = reason == v1::FINISH_REASON_STOP && !calls_.empty() && !broken_off_;
  return called ? v1::FINISH_REASON_TOOL_CALLS : reason;
}

}  // namespace tandem::gateway
