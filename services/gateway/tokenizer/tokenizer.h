// Text to token ids and back, with SentencePiece's ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/base/utf8.h"
#include "services/common/model/vocabulary.h"

namespace tandem::gateway {

// Longest text that Encode takes.
inline constexpr size_t kMaxTextBytes = size_t{1} << 28;
inline constexpr size_t kAnyNumTokens = ~size_t{0};

// Whether a piece of this name ("<bos>", "<start_of_turn>") is a control token in every Gemma
// vocabulary, whatever type the file gives it.
bool IsControlName(std::string_view piece);

// Immutable, thread-safe.
class Tokenizer {
 public:
  // Builds a tokenizer from a vocabulary of either file format: BPE with byte fallback, identity
  // normalisation, no dummy prefix, U+2581 for a space.  Control pieces (by type, and the pieces
  // IsControlName names whatever their type) are never produced from text.  Merges are ordered by
  // the vocabulary's scores if these order its pieces strictly, else by id.
  // INVALID_ARGUMENT: empty, duplicate, oversized or non-UTF-8 pieces, a missing unknown piece or
  // byte piece, arrays of different lengths, too many bytes in all; the message names the id.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(const Vocabulary& vocabulary);
  virtual ~Tokenizer() = default;

  // Ids of `text`, which must be UTF-8 (INVALID_ARGUMENT names the byte offset) and at most
  // kMaxTextBytes long.  No BOS.  Time O(n log n).
  // OUT_OF_RANGE: more than `max_tokens`; detected without encoding much more than that.
  // CANCELLED: the caller has disconnected (base/cancellation.h).
  virtual absl::StatusOr<std::vector<uint32_t>> Encode(std::string_view text,
                                                       size_t max_tokens) const = 0;
  absl::StatusOr<std::vector<uint32_t>> Encode(std::string_view text) const {
    return Encode(text, kAnyNumTokens);
  }
  // Most bytes of text for one token.
  virtual size_t max_token_bytes() const = 0;
  // A token's bytes in text: spaces for U+2581, the byte of a byte token; empty for control tokens
  // and for ids beyond the vocabulary.
  virtual std::string_view TokenBytes(uint32_t id) const = 0;
  // The piece as in the vocabulary; empty for unknown ids.
  virtual std::string_view Piece(uint32_t id) const = 0;
  virtual uint32_t vocab_size() const = 0;
  // Id of a piece spelt exactly so, control pieces included ("<end_of_turn>").
  virtual std::optional<uint32_t> FindPiece(std::string_view piece) const = 0;
  // The text of a sequence of ids; bytes that are not UTF-8 become U+FFFD.
  virtual std::string Decode(const std::vector<uint32_t>& ids) const = 0;
};

// Turns a growing sequence of tokens into text.  The text ends at whole characters, and text that
// may become a stop string is held back.  The stop string that is complete first ends the text; if
// several are complete at the same byte, the longest does.  The search is byte by byte, so the cut
// into tokens does not change the result.  Time O(bytes x stop strings).  Single-thread, one per
// request.
class StreamDecoder {
 public:
  // Stop strings that are empty or not UTF-8 never match.  `shown`: control tokens whose names are
  // part of the text.
  StreamDecoder(const Tokenizer& tokenizer, std::vector<std::string> stops,
                std::vector<uint32_t> shown = {});

  struct Piece {
    std::string text;      // may be empty
    bool stopped = false;  // a stop string was found: the text ends before it
  };
  // After a stop: empty and stopped.
  Piece Append(uint32_t token);
  // The rest at the end; an incomplete character becomes U+FFFD.
  std::string Finish();

 private:
  // A stop string with the failure function of Knuth, Morris and Pratt: border[i] is the length of
  // the longest proper prefix of text[0..i] that is also its suffix.
  struct Stop {
    std::string text;
    std::vector<uint32_t> border;
    uint32_t matched = 0;  // its longest prefix, in bytes, that the text so far ends with
  };

  // Searches pending_ from `begin`; cuts it at a stop string.
  void Search(size_t begin);
  // Removes and returns the text of pending_ that cannot belong to a stop string.
  std::string TakeFree();

  const Tokenizer& tokenizer_;  // Borrowed; must outlive this
  std::vector<Stop> stops_;
  const std::vector<uint32_t> shown_;
  Utf8Stream utf8_;
  std::string pending_;  // whole characters, not returned yet
  bool stopped_ = false;
};

}  // namespace tandem::gateway
