// Answers of /api/chat and /api/generate: one JSON object a line, or a single one.
#pragma once

#include <memory>
#include <string>

#include "services/gateway/api/answer_writer.h"
#include "services/gateway/service/served_model.h"

namespace tandem::gateway {

struct OllamaWriterOptions {
  bool chat = false;  // "message" instead of "response"
  bool stream = true;
  bool logprobs = false;
  std::string model;  // as the client called it
};

// One run, or none.  `model`: Borrowed; must outlive the writer.
std::unique_ptr<AnswerWriter> MakeOllamaWriter(const ServedModel& model,
                                               const OllamaWriterOptions& options);

}  // namespace tandem::gateway
