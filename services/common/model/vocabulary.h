// A model's vocabulary as read from its files, before any tokeniser is built from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

// Values are those of SentencePiece's ModelProto and of GGUF's tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct Vocabulary {
  // All three are [vocab_size], indexed by token id.  Pieces are UTF-8 with U+2581 for a space.
  std::vector<std::string> pieces;
  std::vector<float> scores;
  std::vector<TokenType> types;
  bool add_bos = true;  // whether prompts start with ModelConfig::bos_token_id
};

}  // namespace tandem
