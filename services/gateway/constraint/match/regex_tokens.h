// Which tokens a state of the lexer allows whatever the parser's stack is: found once and kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/gateway/constraint/regex/regex_arena.h"
#include "services/gateway/constraint/vocabulary/token_trie.h"

namespace tandem::gateway::constraint {

// Tokens as masks and as a list; their union counts.
struct TokenSet {
  std::vector<std::shared_ptr<const TokenMask>> masks;
  std::vector<uint32_t> tokens;

  void Append(const TokenSet& other);
  // Lists that take more memory than a mask become one.
  void Compact(size_t mask_words);
  // Without masks that are shared with a vocabulary.
  size_t memory_bytes() const { return tokens.capacity() * sizeof(uint32_t) + masks.size() * 16; }
};

// A state's tokens: those that stay within terminals under way or end one of them.  A token that
// ends a terminal and goes on does so at an exit: what follows depends on the parser.
struct RegexTokens {
  TokenSet inside;
  struct Exit {
    uint32_t tag;   // the terminal that ended
    uint8_t byte;   // of `node`
    uint32_t node;  // the next node of the trie
  };
  std::vector<Exit> exits;  // by tag, then byte
  size_t memory_bytes() const {
    return sizeof(*this) + inside.memory_bytes() + exits.capacity() * sizeof(Exit);
  }
};

// Finds the tokens of the classes of `arena` ahead of the masks that need them; they are kept with
// the vocabulary.
void PrepareClasses(const RegexArena& arena, const TokenTrie& trie);

// Single-thread.  Steps of the automaton by table, and the tokens of its states.
class RegexWalker {
 public:
  // Borrowed; must outlive this.
  RegexWalker(RegexArena& arena, const TokenTrie& trie) : arena_(arena), trie_(trie) {}

  // The derivative of `state` by `byte`, kept in a table.
  RegexId Step(RegexId state, uint8_t byte) {
    if (state < rows_.size() && rows_[state] != nullptr) {
      const RegexId next = rows_[state][byte];
      if (next != kUnknown) return next;
    }
    return StepSlowly(state, byte);
  }
  // The same where the state is not expected to be met again.
  RegexId StepOnce(RegexId state, uint8_t byte) {
    if (state < rows_.size() && rows_[state] != nullptr) return Step(state, byte);
    return arena_.Derive(state, byte);
  }
  const RegexTokens& Tokens(RegexId state);

  // Forgets what can be found again; references from Tokens end.
  void DropCaches();
  size_t memory_bytes() const { return bytes_ + rows_.capacity() * sizeof(void*); }
  // From now on so many nodes of the trie and of regular expressions may be visited.
  void LimitWork(uint64_t most) { work_limit_ = work() + most; }
  uint64_t work() const { return visits_ + arena_.steps(); }
  void CountVisits(uint64_t visits) { visits_ += visits; }
  // Whether there were more: what was found since is incomplete.
  bool exceeded() const { return work() > work_limit_; }
  // The same, and lifts the limit; forgets incomplete results.
  bool TakeExceeded();

 private:
  static constexpr RegexId kUnknown = UINT32_MAX;
  // A state within a repeat of a class: all tokens of at most `max` code points fit, those of at most
  // `longest` may.
  struct Region {
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

    bool Takes(const Subtree& subtree) const {
      return (subtree.bytes & avoided).empty() && tokens->Takes(subtree);
    }
  };
  struct Transition {
    ByteSet bytes;
    RegexId next;
  };

  RegexId StepSlowly(RegexId state, uint8_t byte);
  // Searches up to search_end_.  `avoiding`: a region that leaves out bytes of its class.
  const Region& RegionOf(RegexId state, bool avoiding);
  Region FindRegion(RegexId state);
  // The spaces before a word are a region that says little.
  bool BeginsWithLargerClass(RegexId state, const ClassTokens& tokens) const;
  // Whether a text of `id` may begin with a byte that begins the class's texts.
  bool BeginsWithin(RegexId id, const ClassTokens& tokens);
  Region FindRepeatRegion(RegexId state);
  bool EndsTerminal(RegexId state) const;
  // A class all of whose texts lead to live states.  `any`: the class of all code points, for a text
  // whose length is bounded too; how much it needs to end is found then.
  Region FindClosedRegion(RegexId state, std::optional<uint32_t> any = std::nullopt);
  // Whether every text of region.tokens without region.avoided leads to live states within terminals.
  // Finds the region's `exits` and, where `bounded`, `needed`: kNoLength where it is not known.  Else
  // `way` becomes the bytes, backwards, of a text that leads elsewhere, if that was found.
  bool IsClosed(RegexId state, Region& region, bool bounded, std::string* way);
  // Takes from a class that is not closed the rarest byte of each way out, until none is left.
  Region FindAvoidingRegion(RegexId state);
  Region FindBoundedRegion(RegexId state);
  // Of alternatives that exclude each other: (A and B) or (A and not B) goes on as A does.
  Region FindJointRegion(RegexId state);
  // Whether each text of `id` that ends a terminal has a byte that the class's texts do not have.
  bool EndsOutside(RegexId id, const ClassTokens& tokens) const;
  const std::vector<Transition>& TransitionsOf(RegexId state);
  // A repeat of a class and what follows it, within FindRegion.
  struct RepeatedClass {
    uint32_t regex_class;
    uint32_t min;
    uint32_t max;
    RegexId rest;
  };
  bool FindRepeat(RegexId id, RepeatedClass* out) const;
  // Adds a node's repeats of the class of `out`, or of its first class.
  bool AddRepeat(RegexId id, RepeatedClass* out) const;
  const ClassTokens* TokensOfClass(uint32_t number);  // null: there are too many classes
  // Whether the class's table for `node` says which tokens below fit the region.
  bool HasTable(const Region& region, uint32_t node, uint32_t depth);
  // Adds the tokens below `node` that regions of the state and its alternatives say.  Returns the
  // alternatives that must be walked.
  RegexId AddRegions(RegexId state, uint32_t node, uint32_t depth, RegexTokens& out);
  // False where the state has no region.
  bool AddRegion(RegexId state, uint32_t node, uint32_t depth, RegexTokens& out);
  // REQUIRES HasTable.
  void AddTable(RegexId state, const Region& region, uint32_t node, uint32_t depth,
                RegexTokens& out);
  // The way through a region without tables.  `row` is the class's automaton's; up to `max` code points
  // of the class may begin.
  void WalkRegion(RegexId state, const Region& region, uint16_t row, uint32_t max, uint32_t node,
                  uint32_t depth, RegexTokens& out);
  // Whether the state is the same after every token below a node.
  bool Loops(RegexId state, const Subtree& subtree);
  // The same after every code point that begins with `first`.
  bool LoopsAt(RegexId state, uint8_t first);
  void AddTokens(const TrieNode& node, RegexTokens& out) const;
  void AddTokens(const Subtree& subtree, RegexTokens& out);
  void Walk(RegexId state, uint32_t node, uint32_t depth, RegexTokens& out);
  void Arrive(RegexId state, uint32_t node, uint32_t depth, RegexTokens& out);

  RegexArena& arena_;
  const TokenTrie& trie_;
  std::vector<std::unique_ptr<RegexId[]>> rows_;
  absl::flat_hash_map<RegexId, std::unique_ptr<RegexTokens>> tokens_;
  absl::flat_hash_map<uint32_t, std::shared_ptr<const ClassTokens>> classes_;
  absl::flat_hash_map<RegexId, Region> regions_;
  absl::flat_hash_map<RegexId, Region> avoiding_;  // regions that leave out bytes
  absl::flat_hash_map<RegexId, Region> closed_;    // of patterns whose length is bounded too
  absl::flat_hash_map<RegexId, std::unique_ptr<std::vector<Transition>>> transitions_;
  absl::flat_hash_map<uint64_t, bool> loops_;  // LoopsAt bytes beyond ASCII
  size_t bytes_ = 0;
  uint64_t visits_ = 0;
  uint64_t work_limit_ = UINT64_MAX;
  // Work of the searches for regions of the state whose tokens are looked for, and its bound.
  uint64_t search_work_ = 0;
  uint64_t search_end_ = 0;
};

}  // namespace tandem::gateway::constraint
