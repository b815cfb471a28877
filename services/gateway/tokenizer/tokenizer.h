// Text to token ids and back, over SentencePiece.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/model/vocabulary.h"

namespace tandem::gateway {

// Immutable, thread-safe.
class Tokenizer {
 public:
  // Builds SentencePiece's model from a vocabulary of either file format: BPE with byte fallback,
  // identity normalisation, no dummy prefix.  Control pieces (by type, and Gemma's turn markers
  // whatever their type) are never produced from text.
  // INVALID_ARGUMENT: empty, duplicate or oversized pieces, a missing unknown piece or byte piece,
  // arrays of different lengths.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(const Vocabulary& vocabulary);
  virtual ~Tokenizer() = default;

  // Ids of `text`, which must be UTF-8 (INVALID_ARGUMENT names the byte offset).  No BOS.
  virtual absl::StatusOr<std::vector<uint32_t>> Encode(std::string_view text) const = 0;
  // Bytes that a token stands for in running text: spaces for U+2581, the byte of a byte token,
  // nothing for control tokens.  REQUIRES id < vocab_size().
  virtual std::string_view TokenBytes(uint32_t id) const = 0;
  // The piece as the vocabulary has it.
  virtual std::string_view Piece(uint32_t id) const = 0;
  virtual uint32_t vocab_size() const = 0;
  // Id of a piece spelt exactly so, control pieces included ("<end_of_turn>").
  virtual std::optional<uint32_t> FindPiece(std::string_view piece) const = 0;
  // Whole text of a sequence of ids; bytes that are no UTF-8 become U+FFFD.
  virtual std::string Decode(const std::vector<uint32_t>& ids) const = 0;
};

// Turns a growing sequence of tokens into text that only ever ends at a whole character, with
// anything that may still become a stop string held back.  Single-thread, one per request.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, std::vector<std::string> stops);

  struct Piece {
    std::string text;      // may be empty
    bool stopped = false;  // a stop string was met: text ends before it, generation is over
  };
  Piece Append(uint32_t token);
  // What was held back, at the end; an incomplete character becomes U+FFFD.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;  // Borrowed; must outlive this
  std::vector<std::string> stops_;
  std::string pending_;  // bytes not handed out yet
};

}  // namespace tandem::gateway
