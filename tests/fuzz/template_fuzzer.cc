// Conversations as clients send them: per line a role's first letter and its text; NUL ends lines.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/gateway/tokenizer/chat_template.h"

namespace {

using namespace tandem;

// Bytes, the markers, and a few letters.
std::unique_ptr<gateway::Tokenizer> MakeTokenizer() {
  Vocabulary vocabulary;
  const auto add = [&](std::string piece, TokenType type) {
    vocabulary.pieces.push_back(std::move(piece));
    vocabulary.scores.push_back(-static_cast<float>(vocabulary.scores.size()));
    vocabulary.types.push_back(type);
  };
  for (const char* name : {"<pad>", "<eos>", "<bos>"}) add(name, TokenType::kControl);
  add("<unk>", TokenType::kUnknown);
  add("<start_of_turn>", TokenType::kControl);
  add("<end_of_turn>", TokenType::kControl);
  for (int byte = 0; byte < 256; ++byte) add(absl::StrFormat("<0x%02X>", byte), TokenType::kByte);
  for (const char* piece : {"user", "model", "\n", "\n\n"}) add(piece, TokenType::kNormal);
  return gateway::Tokenizer::Create(vocabulary).value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<gateway::Tokenizer> tokenizer = MakeTokenizer();
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<gateway::Message> messages;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    gateway::Message message;
    const char role = line.empty() ? '?' : line[0];
    message.role = role == 's'   ? "system"
                   : role == 'u' ? "user"
                   : role == 'a' ? "assistant"
                   : role == 'm' ? "model"
                                 : std::string(1, role);
    message.content = line.empty() ? "" : line.substr(1);
    messages.push_back(std::move(message));
  }
  const auto ids = gateway::RenderChat(*tokenizer, 2, messages);
  const auto text = gateway::RenderChatText(messages);
  TANDEM_CHECK(ids.ok() == text.ok());
  if (!ids.ok()) return 0;
  // Markers come from turns alone, however they are spelt in the messages.
  const uint32_t begin = *tokenizer->FindPiece("<start_of_turn>");
  const uint32_t end = *tokenizer->FindPiece("<end_of_turn>");
  const auto begins = std::count(ids->begin(), ids->end(), begin);
  const auto ends = std::count(ids->begin(), ids->end(), end);
  TANDEM_CHECK(begins >= 1 && begins <= static_cast<ptrdiff_t>(messages.size()) + 1);
  TANDEM_CHECK(ends == begins - 1);
  for (const uint32_t id : *ids) TANDEM_CHECK(id < tokenizer->vocab_size());
  return 0;
}
