// States of the lexer at which the tokens of a class of characters fit, whatever comes after.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/gateway/constraint/regex/regex_arena.h"
#include "services/gateway/constraint/vocabulary/token_trie.h"

namespace tandem::gateway::constraint {

// Finds the tokens of the classes of `arena` ahead of the masks that need them, as long as the result
// lives.
using ClassTables = std::vector<std::shared_ptr<const ClassTokens>>;
ClassTables PrepareClasses(const RegexArena& arena, const TokenTrie& trie);

// A state within a repeat of a class: all tokens of at most `max` code points fit, those of at most
// `longest` may.
struct RegexRegion {
  const ClassTokens* tokens = nullptr;  // none: no such state
  uint32_t max = 0;
  uint32_t longest = 0;
  // Tokens of more code points may fit otherwise, unless no token has more than `longest`.
  bool only_if_beyond_tokens = false;
  // Of a closed region: the most code points that a text within it needs to end.
  uint32_t needed = 0;
  uint64_t searched = 0;  // work; where none was found
  ByteSet exits;          // bytes by which tokens may leave the class
  ByteSet avoided;        // ASCII of the class that does not count as such
  // Tokens of more than `max` code points have one of these bytes.
  ByteSet follows = ByteSet::All();

  bool Takes(const Subtree& subtree) const {
    return (subtree.bytes & avoided).empty() && tokens->Takes(subtree);
  }
};

// Finds regions, and keeps them.  Single-thread.
class RegexRegions {
 public:
  // Borrowed; must outlive this.
  RegexRegions(RegexArena& arena, const TokenTrie& trie) : arena_(arena), trie_(trie) {}

  // The tokens of another state are looked for.
  void BeginSearches() { search_work_ = 0; }
  // From now on a search may take so much work, within what one state's searches may.
  void LimitSearch(uint64_t most);
  // `avoiding`: a region that leaves out bytes of its class.
  const RegexRegion& Of(RegexId state, bool avoiding);
  // Whether the class's table for `node` says which tokens below fit the region.
  bool HasTable(const RegexRegion& region, uint32_t node, uint32_t depth);

  // Forgets the regions; references end.
  void Clear();
  size_t memory_bytes() const { return bytes_; }

 private:
  struct Transition {
    ByteSet bytes;
    RegexId next;
  };

  RegexRegion FindRegion(RegexId state);
  // The spaces before a word are a region that says little.
  bool BeginsWithLargerClass(RegexId state, const ClassTokens& tokens) const;
  // Whether a text of `id` may begin with a byte that begins the class's texts.
  bool BeginsWithin(RegexId id, const ClassTokens& tokens);
  RegexRegion FindRepeatRegion(RegexId state);
  // A class all of whose texts lead to live states.  `any`: the class of all code points, for a text
  // whose length is bounded too; how much it needs to end is found then.
  RegexRegion FindClosedRegion(RegexId state, std::optional<uint32_t> any = std::nullopt);
  // Whether every text of region.tokens without region.avoided leads to live states within terminals.
  // Finds the region's `max` (if not, every text of so many code points does), its `exits` and, where
  // `bounded`, `needed`: kNoLength where it is not known.  `way` becomes the bytes, backwards, of a
  // text that leads elsewhere, if that was found.
  bool IsClosed(RegexId state, RegexRegion& region, bool bounded, std::string* way);
  // Takes from a class that is not closed the rarest byte of each way out, until none is left.
  RegexRegion FindAvoidingRegion(RegexId state);
  RegexRegion FindBoundedRegion(RegexId state);
  // Of alternatives that exclude each other: (A and B) or (A and not B) goes on as A does.
  RegexRegion FindJointRegion(RegexId state);
  const std::vector<Transition>& TransitionsOf(RegexId state);
  const ClassTokens* TokensOfClass(uint32_t number);  // null: there are too many classes

  RegexArena& arena_;
  const TokenTrie& trie_;
  absl::flat_hash_map<uint32_t, std::shared_ptr<const ClassTokens>> classes_;
  absl::flat_hash_map<RegexId, RegexRegion> found_;
  absl::flat_hash_map<RegexId, RegexRegion> avoiding_;  // regions that leave out bytes
  absl::flat_hash_map<RegexId, RegexRegion> closed_;    // of patterns whose length is bounded too
  absl::flat_hash_map<RegexId, std::unique_ptr<std::vector<Transition>>> transitions_;
  size_t bytes_ = 0;
  // Work of the searches for regions of the state whose tokens are looked for, and its bound.
  uint64_t search_work_ = 0;
  uint64_t search_end_ = 0;
};

}  // namespace tandem::gateway::constraint
