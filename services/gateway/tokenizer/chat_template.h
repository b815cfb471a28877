// Conversations to token ids in Gemma's turn format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gateway/tokenizer/tokenizer.h"

namespace tandem::gateway {

struct Message {
  std::string role;  // "system", "user", "assistant" or "model"
  std::string content;
};

// <bos>(<start_of_turn>role\n content <end_of_turn>\n)* <start_of_turn>model\n
//
// Turn markers are control tokens; content is trimmed and encoded as plain text, so that markers
// spelt in it stay text.  A leading system message is put before the first user message with a
// blank line between, as Gemma's template does.  INVALID_ARGUMENT: unknown role, system message
// not first, turns that do not alternate starting with the user, no messages, last not the user's.
absl::StatusOr<std::vector<uint32_t>> RenderChat(const Tokenizer& tokenizer, int32_t bos_token_id,
                                                 const std::vector<Message>& messages);

}  // namespace tandem::gateway
