// An answer as it streams, with its calls apart from its text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/gateway/tool_calls/call_parser.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// Single-thread, one per answer.
class AnswerReader {
 public:
  explicit AnswerReader(CallOptions options);

  // As CallParser.
  std::vector<AnswerEvent> Append(std::string_view piece);
  std::vector<AnswerEvent> Finish();

  // What there is so far.
  const std::string& text() const { return text_; }
  const std::vector<v1::ToolCall>& calls() const { return calls_; }
  // The reason as clients see it: FINISH_REASON_TOOL_CALLS for a stop after calls, unless the last
  // one broke off.
  v1::FinishReason ReasonOf(v1::FinishReason reason) const;

 private:
  std::vector<AnswerEvent> Note(std::vector<AnswerEvent> events);

  std::unique_ptr<AnswerParser> parser_;
  std::string text_;
  std::vector<v1::ToolCall> calls_;
  bool broken_off_ = false;  // the answer ended within the last of them
};

}  // namespace tandem::gateway
