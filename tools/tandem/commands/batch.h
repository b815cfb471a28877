// Requests for tokens: one, or many read as JSON lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/answer.h"

namespace tandem {

// A text to continue or, if there are messages, a conversation to answer.
struct BatchItem {
  std::string model;
  std::string prompt;
  std::vector<v1::ChatMessage> messages;
  v1::SamplingParams sampling;
  v1::GenerationLimits limits;
  std::optional<uint32_t> logprobs;
  std::optional<v1::Constraint> constraint;  // of the answer
  std::string id;                            // JSON, handed back; empty: none
};

absl::Status Ask(GenerationStub& stub, const BatchItem& item, absl::Duration timeout,
                 const TextSink& sink, Answer& answer);

// One line: {"prompt": TEXT} or {"messages": [{"role", "content"}, ...]}, and optionally "id" (any
// JSON), "max_tokens", "temperature" and "seed"; other values come from `defaults`.
// INVALID_ARGUMENT names the key.
absl::StatusOr<BatchItem> ParseBatchLine(const std::string& line, const BatchItem& defaults);

// Answers the lines of standard input, `parallel` at once, and prints a line of JSON for each, in
// the same order: AnswerAsJson, or "error" with code and message; "index" counts from 0.  ABORTED,
// after the last line, if some failed.
absl::Status RunBatch(const GatewayAddress& address, const BatchItem& defaults, uint32_t parallel,
                      absl::Duration timeout);

}  // namespace tandem
