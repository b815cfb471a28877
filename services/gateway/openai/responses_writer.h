// Answers of /v1/responses.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "services/gateway/api/answer_writer.h"
#include "services/gateway/api/json.h"
#include "services/gateway/model/served_model.h"
#include "services/gateway/tool_calls/call_parser.h"

namespace tandem::gateway {

struct ResponsesWriterOptions {
  bool stream = false;
  bool logprobs = false;
  std::vector<std::string> ignored;  // members accepted without effect
  // Echoed to the client.
  int64_t top_logprobs = 0;
  float temperature = 1.0f;
  float top_p = 1.0f;
  Json max_output_tokens;  // null: no limit
  Json instructions;
  Json metadata = Json::object();
  Json tools = Json::array();
  Json tool_choice = "auto";
  Json text_format = {{"type", "text"}};
  bool parallel_tool_calls = true;
  // How the answer is read.
  CallOptions calls;
};

// One run.  `model`: Borrowed; must outlive the writer.
std::unique_ptr<AnswerWriter> MakeResponsesWriter(const ServedModel& model,
                                                  ResponsesWriterOptions options);

}  // namespace tandem::gateway
