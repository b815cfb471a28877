// Conversations to token ids in Gemma's turn format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gateway/tokenizer/tokenizer.h"

namespace tandem::gateway {

// A control token within a text.
struct Mark {
  size_t at = 0;      // it is before this byte of the text
  std::string piece;  // "<escape>"
};

struct Message {
  std::string role;  // "system", "developer", "user", "assistant" or "model"
  std::string content;
  std::vector<Mark> marks;  // in order
};

// <bos>(<start_of_turn>role\n content <end_of_turn>\n)* <start_of_turn>model\n
//
// Turn markers are control tokens.  Content is trimmed and encoded as plain text, so markers in it
// stay text.  Gemma's template has two roles that alternate.  Conversations that it accepts give
// its result: a leading system message goes before the first user message, with a blank line
// between.  "developer" has a turn of its own.  Content with marks is not trimmed, and what follows
// it in the same turn follows without blank lines.  Other conversations are converted: every system message counts as the user's,
// consecutive messages of one role become one turn with blank lines between, and a last message of
// the assistant stays open, so that the model continues it.  INVALID_ARGUMENT: no messages, an
// unknown role, content that is not UTF-8.  OUT_OF_RANGE, CANCELLED: as Tokenizer::Encode, of all
// together.  FAILED_PRECONDITION: the vocabulary lacks a turn marker or a mark's piece.
absl::StatusOr<std::vector<uint32_t>> RenderChat(const Tokenizer& tokenizer, int32_t bos_token_id,
                                                 const std::vector<Message>& messages,
                                                 size_t max_tokens = kAnyNumTokens);

// The same conversation as text, without <bos>.  Turn markers are plain text, so they look like
// markers spelt in messages.  The same errors.
absl::StatusOr<std::string> RenderChatText(const std::vector<Message>& messages);

}  // namespace tandem::gateway
