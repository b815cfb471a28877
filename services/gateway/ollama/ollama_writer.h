// Answers of /api/chat and /api/generate: one JSON object a line, or a single one.
#pragma once

#include <memory>
#include <string>

#include "services/gateway/api/answer_writer.h"
#include "services/gateway/model/served_model.h"
#include "services/gateway/tool_calls/call_parser.h"

namespace tandem::gateway {

struct OllamaWriterOptions {
  bool chat = false;  // "message" instead of "response"
  bool stream = true;
  bool logprobs = false;
  std::string model;  // as the client called it
  CallOptions calls;
};

// One run, or none.  `model`: Borrowed; must outlive the writer.
std::unique_ptr<AnswerWriter> MakeOllamaWriter(const ServedModel& model,
                                               const OllamaWriterOptions& options);

}  // namespace tandem::gateway
