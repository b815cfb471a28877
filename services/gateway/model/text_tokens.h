// Texts to tokens and back, within what a context holds.
//
// A text is judged by its bytes before it is encoded, and while it is, so that one that is too long
// costs no more than one that just fits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gateway/model/served_model.h"
#include "services/gateway/tokenizer/chat_template.h"

namespace tandem::gateway {

// All: INVALID_ARGUMENT "context_length_exceeded: ..." with the tokens there are, "at least" so many
// where they were not counted to the end, and the context's; CANCELLED: nobody waits.

// A prompt leaves room for one token more.
absl::Status CheckPromptTokens(uint64_t num_tokens, const ServedModel& model);
// `text` after the model's beginning-of-sequence token, where it has one.
absl::StatusOr<std::vector<uint32_t>> EncodePrompt(std::string_view text, const ServedModel& model);
// Errors of RenderChat too.  `pictures`: as RenderChat's.
absl::StatusOr<std::vector<uint32_t>> EncodeChat(const std::vector<Message>& messages,
                                                 const ServedModel& model,
                                                 PicturePlaces* pictures = nullptr);

// For clients that count tokens; a text may fill the context.
absl::StatusOr<std::vector<uint32_t>> TokensOf(std::string_view text, bool add_bos,
                                               const ServedModel& model);
// Whether so many tokens may be made text; then Tokenizer::Decode.
absl::Status CheckNumTokens(uint64_t num_tokens, const ServedModel& model);

}  // namespace tandem::gateway
