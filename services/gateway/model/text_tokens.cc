#include "services/gateway/model/text_tokens.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway {
namespace {

// Tokens beyond the context that are counted still, so that most errors have the exact number.
constexpr uint64_t kCountedBeyond = 4096;

absl::Status PromptTooLong(const char* at_least, uint64_t num_tokens, const ServedModel& model) {
  return absl::InvalidArgumentError(
      absl::StrFormat("context_length_exceeded: the prompt has %s%d tokens and must leave room for "
                      "one more in a context of %d",
                      at_least, num_tokens, model.replicas().max_sequence_len()));
}

absl::Status TextTooLong(const char* at_least, uint64_t num_tokens, const ServedModel& model) {
  return absl::InvalidArgumentError(absl::StrFormat(
      "context_length_exceeded: %s%d tokens, a context holds %d; send the text in parts", at_least,
      num_tokens, model.replicas().max_sequence_len()));
}

uint64_t NumCounted(const ServedModel& model) {
  return model.replicas().max_sequence_len() + kCountedBeyond;
}

// `num_bytes` of text have so many tokens at least.
uint64_t LeastTokens(uint64_t num_bytes, const ServedModel& model) {
  return num_bytes / model.tokenizer().max_token_bytes();
}

// What an encoding with the limit NumCounted has given, as a prompt.
absl::StatusOr<std::vector<uint32_t>> AsPrompt(absl::StatusOr<std::vector<uint32_t>> ids,
                                               const ServedModel& model) {
  if (absl::IsOutOfRange(ids.status())) {
    return PromptTooLong("at least ", NumCounted(model) + 1, model);
  }
  if (ids.ok()) TANDEM_RETURN_IF_ERROR(CheckPromptTokens(ids->size(), model));
  return ids;
}

absl::StatusOr<std::vector<uint32_t>> Encode(std::string_view text, bool add_bos,
                                             const ServedModel& model) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<uint32_t> ids,
                          model.tokenizer().Encode(text, NumCounted(model)));
  if (add_bos && model.bos().has_value()) ids.insert(ids.begin(), *model.bos());
  return ids;
}

}  // namespace

absl::Status CheckPromptTokens(uint64_t num_tokens, const ServedModel& model) {
  if (num_tokens < model.replicas().max_sequence_len()) return absl::OkStatus();
  return PromptTooLong("", num_tokens, model);
}

absl::StatusOr<std::vector<uint32_t>> EncodePrompt(std::string_view text,
                                                   const ServedModel& model) {
  const uint64_t least = LeastTokens(text.size(), model);
  if (!CheckPromptTokens(least, model).ok()) return PromptTooLong("at least ", least, model);
  return AsPrompt(Encode(text, /*add_bos=*/true, model), model);
}

absl::StatusOr<std::vector<uint32_t>> EncodeChat(const std::vector<Message>& messages,
                                                 const ServedModel& model,
                                                 PicturePlaces* pictures) {
  // Between two messages are markers or a blank line, the text of two bytes at least.
  uint64_t num_bytes = 2 * messages.size();
  for (const Message& message : messages) num_bytes += message.content.size();
  uint64_t least = LeastTokens(num_bytes, model);
  for (const Message& message : messages) {
    if (pictures != nullptr) least += message.pictures.size() * uint64_t{pictures->num_rows};
  }
  if (pictures != nullptr) {
    for (const uint32_t crops : pictures->num_crops) least += uint64_t{crops} * pictures->num_rows;
  }
  if (!CheckPromptTokens(least, model).ok()) return PromptTooLong("at least ", least, model);
  const int32_t bos = model.bos().has_value() ? static_cast<int32_t>(*model.bos()) : -1;
  return AsPrompt(RenderChat(model.tokenizer(), bos, messages, NumCounted(model), pictures), model);
}

absl::StatusOr<std::vector<uint32_t>> TokensOf(std::string_view text, bool add_bos,
                                               const ServedModel& model) {
  const uint64_t context = model.replicas().max_sequence_len();
  const uint64_t least = LeastTokens(text.size(), model);
  if (least > context) return TextTooLong("the text has at least ", least, model);
  auto ids = Encode(text, add_bos, model);
  if (absl::IsOutOfRange(ids.status())) {
    return TextTooLong("the text has at least ", NumCounted(model) + 1, model);
  }
  if (ids.ok() && ids->size() > context) return TextTooLong("the text has ", ids->size(), model);
  return ids;
}

absl::Status CheckNumTokens(uint64_t num_tokens, const ServedModel& model) {
  if (num_tokens <= model.replicas().max_sequence_len()) return absl::OkStatus();
  return TextTooLong("", num_tokens, model);
}

}  // namespace tandem::gateway
