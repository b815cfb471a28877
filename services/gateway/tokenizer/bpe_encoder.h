// Byte-pair encoding with scores, as SentencePiece does it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "services/gateway/tokenizer/char_pairs.h"

namespace tandem::gateway {

// The role of a piece in encoding.
enum class PieceUse : uint8_t {
  kNone,   // never produced by merging or matching
  kMerge,  // a result of merges, or a character
  kSplit,  // an intermediate result of merges, split again at the end ("unused")
  kMatch,  // found in the text before any merge, longest first ("user-defined")
};

struct BpePiece {
  std::string_view text;  // Borrowed; must outlive the encoder
  float score = 0.0f;
  PieceUse use = PieceUse::kNone;
};

// 1. The text is cut into kMatch pieces (longest match, left to right) and the characters between.
// 2. Neighbouring symbols that together are a piece are merged: the highest score first, among
//    equals the leftmost, until no pair is left.  Matched pieces are not merged.
// 3. Each symbol that is not a piece becomes its bytes.
// Sources: Sennrich et al. 2016; merges ordered by the pieces' scores as in Kudo and Richardson
// 2018; bpe_model.cc of SentencePiece, which gives the same ids.
//
// A text is cut where no piece can cross (char_pairs.h).  Each part is encoded alone; a repeated
// part is encoded once.  Time O(n log m) for n bytes of text and m bytes of the longest part;
// memory O(m) plus the ids.  Immutable, thread-safe.
class BpeEncoder {
 public:
  // REQUIRES: texts of all pieces but kNone are distinct, not empty, well-formed UTF-8; no score is
  // NaN.  `byte_ids`: the token of each byte.
  BpeEncoder(const std::vector<BpePiece>& pieces, const std::array<uint32_t, 256>& byte_ids);

  // Appends the ids of `text` (well-formed UTF-8, below 1 GiB) to `ids`.  A space counts as U+2581.
  // OUT_OF_RANGE: more than `max_tokens` ids; detected before the end of the text.  CANCELLED: the
  // caller has disconnected (base/cancellation.h).  After an error `ids` is undefined.
  absl::Status Encode(std::string_view text, size_t max_tokens, std::vector<uint32_t>& ids) const;

 private:
  static constexpr uint32_t kNoPiece = 0xFFFFFFFFu;

  struct Entry {
    uint32_t id = kNoPiece;
    float score = 0.0f;
    bool split = false;
  };
  class Merger;
  class Parts;

  void AddMatch(std::string_view text, uint32_t id);
  // Length in bytes and id of the longest kMatch piece that `text` starts with; length 0: no such
  // piece.
  uint32_t LongestMatch(std::string_view text, uint32_t& id) const;

  absl::flat_hash_map<std::string_view, Entry> mergeable_;
  CharPairs pairs_;  // of all pieces
  std::array<uint32_t, 256> byte_ids_;

  // Trie of the kMatch pieces: children by (node << 8 | byte); node 0 is the root.
  absl::flat_hash_map<uint64_t, uint32_t> children_;
  std::array<uint32_t, 256> root_children_ = {};  // 0: none
  std::vector<uint32_t> node_ids_ = {kNoPiece};
};

}  // namespace tandem::gateway
