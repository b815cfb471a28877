// Answers of /v1/messages.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "services/gateway/api/answer_writer.h"
#include "services/gateway/model/served_model.h"
#include "services/gateway/tool_calls/call_parser.h"

namespace tandem::gateway {

struct AnthropicWriterOptions {
  bool stream = false;
  size_t prompt_tokens = 0;
  std::vector<std::string> stops;  // of the request
  CallOptions calls;               // how the answer is read
};

// One run.  `model`: Borrowed; must outlive the writer.
std::unique_ptr<AnswerWriter> MakeAnthropicWriter(const ServedModel& model,
                                                  AnthropicWriterOptions options);

}  // namespace tandem::gateway
