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
  size_t at = 0;         // it is before this byte of the text
  std::string piece;     // "<escape>"
  bool picture = false;  // the rows of a picture follow it
};

struct Message {
  std::string role;  // "system", "developer", "user", "assistant" or "model"
  std::string content;
  std::vector<Mark> marks;  // in order
  // Where pictures stand: bytes of the content before each, ascending.  REQUIRES no marks.
  std::vector<size_t> pictures = {};
};

struct Conversation {
  std::vector<Message> messages;
};

// What stands for a row of a picture among the ids.
inline constexpr uint32_t kPictureToken = 0;

// The rows of a conversation's pictures.
struct PicturePlaces {
  uint32_t num_rows = 0;            // of each: given
  std::vector<uint32_t> num_crops;  // by picture, given; empty: no crops
  // Index of the first row among the ids: of each picture, then of its crops.
  std::vector<uint32_t> first;
};

// <bos>(<start_of_turn>role\n content <end_of_turn>\n)* <start_of_turn>model\n
//
// Turn markers are control tokens.  Content is trimmed and encoded as plain text, so markers in it
// stay text.  Gemma's template has two roles that alternate.  Conversations that it accepts give
// its result: a leading system message goes before the first user message, with a blank line
// between.  "developer" has a turn of its own.  Content with marks is not trimmed, and what follows
// it in the same turn follows without blank lines.  A picture becomes
// \n\n<start_of_image> rows <end_of_image>\n\n; the texts around it are trimmed each, and its rows
// have kPictureToken as their ids.  Crops follow it, in the words of Gemma's processor for pan and
// scan.  Other conversations are converted: every system message counts
// as the user's, consecutive messages of one role become one turn with blank lines between, and a
// last message of the assistant stays open, so that the model continues it.  INVALID_ARGUMENT: no messages, an
// unknown role, content that is not UTF-8.  OUT_OF_RANGE, CANCELLED: as Tokenizer::Encode, of all
// together.  FAILED_PRECONDITION: the vocabulary lacks a turn marker or a mark's piece.
// `pictures`: filled; may be null where no message has pictures.  REQUIRES num_crops is empty or has all pictures.
absl::StatusOr<std::vector<uint32_t>> RenderChat(const Tokenizer& tokenizer, int32_t bos_token_id,
                                                 const std::vector<Message>& messages,
                                                 size_t max_tokens = kAnyNumTokens,
                                                 PicturePlaces* pictures = nullptr);

// The same conversation as text, without <bos>.  Turn markers are plain text, so they look like
// markers spelt in messages.  Of a picture it has the markers.  The same errors.
absl::StatusOr<std::string> RenderChatText(const std::vector<Message>& messages);

}  // namespace tandem::gateway
