// A conversation in a file: {"messages": [{"role": "user", "content": "..."}, ...]}, as OpenAI's
// API takes them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/v1/generation.pb.h"

namespace tandem {

// Replaces the whole file, or leaves it unchanged on error.
absl::Status SaveTranscript(const std::string& path, const std::vector<v1::ChatMessage>& messages);

// INVALID_ARGUMENT names the file, the message and the fault.
absl::StatusOr<std::vector<v1::ChatMessage>> LoadTranscript(const std::string& path);

}  // namespace tandem
