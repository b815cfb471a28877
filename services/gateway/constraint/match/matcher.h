// Follows texts through a grammar, byte by byte, and says which tokens may come next.
//
// A configuration is a set of threads.  A thread is a set of the parser and a state of the lexer:
// the terminals that may come from that set, less what has been read of them.  Where a terminal may
// end, a thread of the next set begins beside the one that goes on.  Equal configurations are one,
// so results about one are kept.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "services/gateway/constraint/grammar/grammar.h"
#include "services/gateway/constraint/match/parse_sets.h"
#include "services/gateway/constraint/match/regex_tokens.h"
#include "services/gateway/constraint/vocabulary/token_trie.h"

namespace tandem::gateway::constraint {

using ConfigId = uint32_t;
inline constexpr ConfigId kDeadConfig = 0;  // no text has this beginning

struct MatcherLimits {
  size_t cache_bytes = size_t{8} << 20;    // above it what can be found again is dropped
  size_t memory_bytes = size_t{16} << 20;  // above it the matcher fails
  uint64_t call_work = 4'000'000;  // nodes of the trie and of regular expressions a call may visit
};

// Single-thread.  Configurations are good for the matcher's life.
// RESOURCE_EXHAUSTED from any method: following this text takes more than the limits.  failed() then
// says whether it stays so for every text: the memory is used up.
class Matcher {
 public:
  Matcher(Grammar grammar, std::shared_ptr<const TokenTrie> trie, const MatcherLimits& limits);
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  absl::StatusOr<ConfigId> Start();
  // From now on calls may visit so many nodes in all, and each as many as MatcherLimits says.
  void LimitWork(uint64_t most);
  // Nodes visited since the matcher was made.
  uint64_t work() const { return walker_.work(); }
  // kDeadConfig where no text goes on so.
  absl::StatusOr<ConfigId> Advance(ConfigId config, std::string_view bytes);
  // Whether the text may end here.
  bool accepting(ConfigId config) const { return configs_[config].accepting; }
  // Whether a byte may follow.  True, too, where finding out takes more work than is allowed.
  bool CanGoOn(ConfigId config);
  // Sets out[i / 32] bit i % 32 for each token i that may come next, end tokens where the text may
  // end, and clears the others.  out: [trie.mask_words()].
  absl::Status Mask(ConfigId config, std::span<uint32_t> out);
  // The bytes that must follow: as long as one alone may, and at most `max_bytes`.  What was read
  // of it is at `after`.
  absl::StatusOr<std::string> Forced(ConfigId config, size_t max_bytes, ConfigId* after);
  // Whether a token begins with `bytes`, goes on beyond them and may come next.
  absl::StatusOr<bool> LongerTokenFits(ConfigId config, std::string_view bytes);

  bool failed() const { return failed_; }
  const TokenTrie& trie() const { return *trie_; }
  size_t memory_bytes() const;
  // The part that is not a cache.
  size_t core_bytes() const;

 private:
  struct Thread {
    SetId set;
    RegexId regex;
    friend bool operator==(const Thread&, const Thread&) = default;
    friend auto operator<=>(const Thread&, const Thread&) = default;
  };
  struct Config {
    std::vector<Thread> threads;  // sorted
    bool accepting = false;
    std::unique_ptr<TokenSet> mask;
  };
  static constexpr size_t kMaxThreads = 500;

  ConfigId Intern(std::vector<Thread> threads, bool accepting);
  // Enters `set` with a fresh lexer.
  void Enter(SetId set, std::vector<Thread>& threads, bool& accepting);
  bool Step(std::vector<Thread>& threads, bool& accepting, uint8_t byte, bool keep);
  absl::Status Check();
  void BeginCall() { walker_.LimitWork(std::min(limits_.call_work, work_end_ - work())); }
  TokenSet MakeMask(const std::vector<Thread>& threads);
  void WalkSet(SetId set, uint32_t node);
  void Walk(SetId set, RegexId regex, uint32_t node);
  void Arrive(SetId set, RegexId regex, uint32_t node);

  Grammar grammar_;
  const std::shared_ptr<const TokenTrie> trie_;
  const MatcherLimits limits_;
  ParseSets sets_;
  RegexWalker walker_;
  std::vector<Config> configs_;
  absl::flat_hash_map<std::vector<uint32_t>, ConfigId> config_ids_;
  size_t config_bytes_ = 0;
  size_t mask_bytes_ = 0;
  uint64_t work_end_ = UINT64_MAX;  // of work()
  bool failed_ = false;
  bool refused_ = false;                   // the call under way
  TokenCollector tokens_;                  // of the mask under way
  absl::flat_hash_set<uint64_t> visited_;  // its (set, node)
};

}  // namespace tandem::gateway::constraint
