// Answers of /v1/chat/completions.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "services/gateway/api/answer_writer.h"
#include "services/gateway/model/served_model.h"
#include "services/gateway/tool_calls/call_parser.h"

namespace tandem::gateway {

struct ChatWriterOptions {
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  bool ignore_eos = false;
  std::vector<std::string> ignored;  // members accepted without effect
  size_t num_choices = 1;
  CallOptions calls;
};

// Run i is choice i.  `model`: Borrowed; must outlive the writer.
std::unique_ptr<AnswerWriter> MakeChatWriter(const ServedModel& model,
                                             const ChatWriterOptions& options);

}  // namespace tandem::gateway
