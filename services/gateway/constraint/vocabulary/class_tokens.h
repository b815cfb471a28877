// The tokens whose text consists of a class's code points, by how many there are.
//
// Within a repeat of a class, such as a JSON string's text or [a-z]{1,64}, which tokens fit depends
// on the number of repeats left alone.  So they are found once for each class and vocabulary, and
// not by walking the whole trie for every state.  Tokens that leave the class do so at exits, from
// which each state walks on by itself.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/common/base/mutex.h"
#include "services/gateway/constraint/regex/byte_set.h"
#include "services/gateway/constraint/regex/code_point_set.h"
#include "services/gateway/constraint/regex/regex_arena.h"

namespace tandem::gateway::constraint {

class TokenTrie;
struct Subtree;
using TokenMask = std::vector<uint32_t>;  // [TokenTrie::mask_words()]

// The tokens below one node of the trie whose further text is of the class.  Immutable but for the
// masks; thread-safe.
class TokensBelow {
 public:
  // Where tokens leave the class: a node by which they do, whose parent is reached from the first
  // node by whole code points of the class.  `token` passes it; it is `depth` bytes from the root.
  struct Exit {
    uint32_t node;
    uint32_t token;
    uint32_t depth;
  };
  std::span<const Exit> exits(uint8_t byte) const {
    return std::span(exits_).subspan(exit_offsets_[byte],
                                     exit_offsets_[byte + 1] - exit_offsets_[byte]);
  }
  // Tokens of at most `count` further code points; one that a token breaks off counts.
  std::span<const uint32_t> Tokens(uint32_t count) const;
  // The same as a mask.
  std::shared_ptr<const TokenMask> Mask(uint32_t count) const;
  // From this number of code points on, there are no tokens.
  uint32_t max_count() const { return static_cast<uint32_t>(count_offsets_.size() - 1); }

  size_t memory_bytes() const;

 private:
  friend class ClassTokens;
  explicit TokensBelow(size_t mask_words) : mask_words_(mask_words) {}

  const size_t mask_words_;
  std::vector<uint32_t> tokens_;         // by number of code points
  std::vector<uint32_t> count_offsets_;  // tokens_ of at most i code points end at [i]
  std::vector<Exit> exits_;              // by the node's byte
  std::array<uint32_t, 257> exit_offsets_ = {};

  mutable Mutex mutex_;
  mutable absl::flat_hash_map<uint32_t, std::shared_ptr<const TokenMask>> masks_
      ABSL_GUARDED_BY(mutex_);
};

// One class.  Thread-safe.
class ClassTokens {
 public:
  explicit ClassTokens(const CodePointSet& code_points);

  // Of the tokens below `node`, which is `depth` bytes from the root; made when first asked for.
  // The reference is good for this object's life.
  const TokensBelow& Below(const TokenTrie& trie, uint32_t node, uint32_t depth) const;
  // Bytes that begin one of the class's code points.
  const ByteSet& first_bytes() const { return first_bytes_; }
  const CodePointSet& code_points() const { return code_points_; }
  // Whether every code point with two bytes or more is in the class.
  bool is_whole_utf8() const { return is_whole_utf8_; }
  // Whether the tokens below a node consist of the class's code points, from the node on.
  // May say no where they do.
  bool Takes(const Subtree& subtree) const;
  // The class's automaton: row 0 is before a code point.
  static constexpr uint16_t kDead = UINT16_MAX;
  uint16_t Next(uint16_t row, uint8_t byte) const { return rows_[row][byte]; }
  // The same by the row that follows, kDead excepted.
  struct Way {
    uint16_t next;
    ByteSet bytes;
  };
  const std::vector<Way>& Ways(uint16_t row) const { return ways_[row]; }
  size_t memory_bytes() const;

 private:
  class Walk;
  // A state of the class's automaton.
  using Row = std::array<uint16_t, 256>;

  const CodePointSet code_points_;
  ByteSet first_bytes_;
  ByteSet whole_first_bytes_;  // all of whose code points are in the class
  bool is_whole_utf8_ = false;
  std::vector<Row> rows_;
  std::vector<std::vector<Way>> ways_;  // of each of rows_

  mutable Mutex mutex_;
  mutable absl::flat_hash_map<uint32_t, std::unique_ptr<const TokensBelow>> below_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::gateway::constraint
