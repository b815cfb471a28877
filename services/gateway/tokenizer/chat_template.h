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
// spelt in it stay text.  Gemma knows two roles that take turns.  What Gemma's template takes comes
// out as there: a leading system message before the first user message with a blank line between.
// What that refuses and clients send all the same is brought to it: a system message counts as the
// user's wherever it is, messages of one role after another are one turn with blank lines between,
// and a last message of the assistant is left open, so that the model goes on with it.
// INVALID_ARGUMENT: no messages, an unknown role, content that is not UTF-8.
// OUT_OF_RANGE, CANCELLED: as Tokenizer::Encode, of all together.
absl::StatusOr<std::vector<uint32_t>> RenderChat(const Tokenizer& tokenizer, int32_t bos_token_id,
                                                 const std::vector<Message>& messages,
                                                 size_t max_tokens = kAnyNumTokens);

// The same conversation as text, without <bos>.  Turn markers are plain text, so they look like
// markers spelt in messages.  The same errors.
absl::StatusOr<std::string> RenderChatText(const std::vector<Message>& messages);

}  // namespace tandem::gateway
