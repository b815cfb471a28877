// Vocabularies for tests and measurements.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gateway/constraint/vocabulary/token_trie.h"

namespace tandem::gateway::constraint {

// Token 0 ends the text, token 1 is a control token, token 2 + b is the byte b.  `pieces` follow.
inline constexpr uint32_t kEndToken = 0;
std::shared_ptr<const TokenTrie> ByteVocabulary(const std::vector<std::string>& pieces = {});
// Bytes, frequent pieces of JSON and English, pieces of several characters and halves of
// characters: about 700 tokens.
std::shared_ptr<const TokenTrie> SmallVocabulary();

// $TANDEM_GEMMA_TOKENIZER or gemma3-tokenizer.json(.xz) in `folder`; empty when neither is there.
std::filesystem::path FindTokenizerFile(const std::filesystem::path& folder);
// The text vocabulary of a tokenizer.json with byte fallback (Gemma's).  Control tokens have no
// bytes. INVALID_ARGUMENT: not such a file.
absl::StatusOr<std::shared_ptr<const TokenTrie>> ReadTokenizerFile(
    const std::filesystem::path& path);

// `text` as tokens, the longest piece first.  REQUIRES: every byte is a token.
std::vector<uint32_t> LongestTokens(const TokenTrie& trie, std::string_view text);

}  // namespace tandem::gateway::constraint
