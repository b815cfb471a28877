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
// Turn markers are control tokens.  Content is trimmed and encoded as plain text, so markers in it
// stay text.  Gemma's template has two roles that alternate.  Conversations that it accepts give
// its result: a leading system message goes before the first user message, with a blank line
// between.  Other conversations are converted: every system message counts as the user's,
// consecutive messages of one role become one turn with blank lines between, and a last message of
// the assistant stays open, so that the model continues it.  INVALID_ARGUMENT: no messages, an
// unknown role, content that is not UTF-8.  OUT_OF_RANGE, CANCELLED: as Tokenizer::Encode, of all
// together.
absl::StatusOr<std::vector<uint32_t>> RenderChat(const Tokenizer& tokenizer, int32_t bos_token_id,
                                                 const std::vector<Message>& messages,
                                                 size_t max_tokens = kAnyNumTokens);

// The same conversation as text, without <bos>.  Turn markers are plain text, so they look like
// markers spelt in messages.  The same errors.
absl::StatusOr<std::string> RenderChatText(const std::vector<Message>& messages);

}  // namespace tandem::gateway
