// Sets of tokens, as masks are made of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "services/gateway/constraint/vocabulary/class_tokens.h"

namespace tandem::gateway::constraint {

// Tokens as masks and as a list; their union counts.
struct TokenSet {
  std::vector<std::shared_ptr<const TokenMask>> masks;
  std::vector<uint32_t> tokens;  // each once

  // Without masks that are shared with a vocabulary.
  size_t memory_bytes() const { return tokens.capacity() * sizeof(uint32_t) + masks.size() * 16; }
};

// Collects a set token by token.  Single-thread.
class TokenCollector {
 public:
  explicit TokenCollector(size_t mask_words) : words_(mask_words, 0), used_(mask_words + 1) {}

  void Add(uint32_t token) {
    uint32_t& word = words_[token / 32];
    const uint32_t bit = 1u << (token % 32);
    used_[num_used_] = token / 32;
    num_used_ += word == 0 ? 1 : 0;
    count_ += (word & bit) == 0 ? 1 : 0;
    word |= bit;
  }
  void Add(std::span<const uint32_t> tokens) {
    for (const uint32_t token : tokens) Add(token);
  }
  // The mask becomes one of the set's.
  void Add(std::shared_ptr<const TokenMask> mask);
  void Add(const TokenSet& set);

  // What was added, after which nothing is.  A list that would take more memory than a mask is one.
  TokenSet Take();
  size_t memory_bytes() const {
    return (words_.capacity() + used_.capacity()) * sizeof(uint32_t) + sizeof(*this);
  }

 private:
  TokenMask words_;
  size_t count_ = 0;            // bits of words_
  std::vector<uint32_t> used_;  // [num_used_ and one more] words that are not zero
  size_t num_used_ = 0;
  std::vector<std::shared_ptr<const TokenMask>> masks_;
};

}  // namespace tandem::gateway::constraint
