// Which tokens a state of the lexer allows whatever the parser's stack is: found once and kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/gateway/constraint/match/regex_regions.h"
#include "services/gateway/constraint/match/token_set.h"
#include "services/gateway/constraint/regex/regex_arena.h"
#include "services/gateway/constraint/vocabulary/token_trie.h"

namespace tandem::gateway::constraint {

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

// Single-thread.  Steps of the automaton by table, and the tokens of its states.
class RegexWalker {
 public:
  // Borrowed; must outlive this.
  RegexWalker(RegexArena& arena, const TokenTrie& trie)
      : arena_(arena), trie_(trie), regions_(arena, trie), inside_(trie.mask_words()) {}

  // The derivative of `state` by `byte`, kept in a table.
  RegexId Step(RegexId state, uint8_t byte) {
    const RegexId* const row = RowOf(state);
    return row != nullptr && row[byte] != kUnknown ? row[byte] : StepSlowly(state, byte);
  }
  // The same where the state is not expected to be met again.
  RegexId StepOnce(RegexId state, uint8_t byte) {
    if (RowOf(state) != nullptr) return Step(state, byte);
    return arena_.Derive(state, byte);
  }
  const RegexTokens& Tokens(RegexId state);

  // Forgets what can be found again; references from Tokens end.
  void DropCaches();
  size_t memory_bytes() const {
    return bytes_ + regions_.memory_bytes() + rows_.capacity() * sizeof(void*) +
           inside_.memory_bytes();
  }
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
  // The state's steps by byte, [256]; null before StepSlowly makes them.
  const RegexId* RowOf(RegexId state) const {
    return state < rows_.size() ? rows_[state].get() : nullptr;
  }
  RegexId StepSlowly(RegexId state, uint8_t byte);
  // Adds the tokens below `node` that regions of the state and its alternatives say.  Returns the
  // alternatives that must be walked.
  RegexId AddRegions(RegexId state, uint32_t node, uint32_t depth);
  // False where the state has no region.
  bool AddRegion(RegexId state, uint32_t node, uint32_t depth);
  // REQUIRES RegexRegions::HasTable.
  void AddTable(RegexId state, const RegexRegion& region, uint32_t node, uint32_t depth);
  // The way through a region without tables.  `row` is the class's automaton's; up to `max` code points
  // of the class may begin.
  void WalkRegion(RegexId state, const RegexRegion& region, uint16_t row, uint32_t max,
                  uint32_t node, uint32_t depth);
  // Whether the state is the same after every token below a node.
  bool Loops(RegexId state, const Subtree& subtree);
  // The same after every code point that begins with `first`.
  bool LoopsAt(RegexId state, uint8_t first);
  void AddTokens(const TrieNode& node);
  void AddTokens(const Subtree& subtree);
  // Those of at most `most` code points after the subtree's node, which `depth` bytes lead to.
  void AddTokens(const Subtree& subtree, uint32_t depth, uint32_t most);
  void Walk(RegexId state, uint32_t node, uint32_t depth);
  void Arrive(RegexId state, uint32_t node, uint32_t depth);

  RegexArena& arena_;
  const TokenTrie& trie_;
  RegexRegions regions_;
  // Of the state whose tokens are looked for.
  TokenCollector inside_;
  std::vector<RegexTokens::Exit> exits_;
  std::vector<std::unique_ptr<RegexId[]>> rows_;
  absl::flat_hash_map<RegexId, std::unique_ptr<RegexTokens>> tokens_;
  absl::flat_hash_map<uint64_t, bool> loops_;  // LoopsAt bytes beyond ASCII
  size_t bytes_ = 0;
  uint64_t visits_ = 0;
  uint64_t work_limit_ = UINT64_MAX;
};

}  // namespace tandem::gateway::constraint
