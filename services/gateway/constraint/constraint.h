// What the text of an answer must be: a grammar over bytes, followed token by token.
//
// A Constraint is compiled once from its source and shared by requests; a ConstraintState is where
// one answer is in it.  Neither knows of devices, requests or sampling.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/base/mutex.h"
#include "services/gateway/constraint/grammar/grammar.h"
#include "services/gateway/constraint/match/matcher.h"
#include "services/gateway/constraint/vocabulary/token_trie.h"

namespace tandem::gateway::constraint {

class ConstraintState;

// Thread-safe.  Its states share what they learn about the grammar: sets, steps, masks.
class Constraint : public std::enable_shared_from_this<Constraint> {
 public:
  static std::shared_ptr<Constraint> Create(Grammar grammar, std::shared_ptr<const TokenTrie> trie,
                                            const MatcherLimits& limits = {});

  // The state before the first token.
  absl::StatusOr<ConstraintState> Start();
  // How much a step for one of its answers took (ConstraintState::work).  A step of more than `most_quick` makes the
  // constraint slow; 64 others in a row make it quick again.
  void NoteWork(uint64_t work, uint64_t most_quick);
  // Whether the next step may take long.
  bool slow() const { return num_slow_ > 0; }
  // Words of a mask.
  size_t mask_words() const { return trie_->mask_words(); }
  // Heap bytes, without the vocabulary's.
  size_t memory_bytes() const;

 private:
  friend class ConstraintState;
  struct Shared {
    explicit Shared(Grammar grammar, std::shared_ptr<const TokenTrie> trie,
                    const MatcherLimits& limits)
        : matcher(std::move(grammar), std::move(trie), limits) {}
    Mutex mutex;
    Matcher matcher ABSL_GUARDED_BY(mutex);
  };

  Constraint(Grammar grammar, std::shared_ptr<const TokenTrie> trie, const MatcherLimits& limits);

  const Grammar grammar_;  // as compiled; matchers have copies that grow
  const std::shared_ptr<const TokenTrie> trie_;
  const MatcherLimits limits_;
  const ClassTables tables_;       // kept for its masks
  std::atomic<int> num_slow_ = 0;  // steps to go until it is quick
  mutable Mutex mutex_;
  // Replaced when it has grown much: states under way keep the old one.
  std::shared_ptr<Shared> current_ ABSL_GUARDED_BY(mutex_);
};

// A value: a copy is a few words and goes its own way.  The same tokens lead to the same state, so
// a state can be made again by replaying them.  Thread-compatible.
//
// Errors: RESOURCE_EXHAUSTED where the grammar takes more memory or time than MatcherLimits or LimitWork.
class ConstraintState {
 public:
  // From now on all calls together may visit `most` nodes of the vocabulary and of regular expressions.
  void LimitWork(uint64_t most) {
    most_work_ = most;
    work_ = 0;
  }
  // Nodes visited since.
  uint64_t work() const { return work_; }
  // Sets bit i % 32 of out[i / 32] for each token i that may come next, and clears the others.  End
  // tokens are set where the text may end.  out: [TokenTrie::mask_words()].
  absl::Status Mask(std::span<uint32_t> out) const;
  // Goes on by `token`.  False, and no change, where it may not come next.  After an end token no
  // other may.
  absl::StatusOr<bool> Advance(uint32_t token);
  // Whether the text may end here.
  bool Accepting() const;
  // Whether the text is complete and nothing can follow, or an end token was taken.
  bool Done() const;
  // The bytes that must follow, at most `max_bytes`: those of the only way on.
  absl::StatusOr<std::string> ForcedBytes(size_t max_bytes = 1024) const;
  // The tokens that must follow, as `encode` (text to tokens, without control tokens) spells the
  // forced bytes.  Stops before a token which the vocabulary could merge with what comes after, so
  // that the tokens are those the model would write.
  using Encoder = std::function<std::vector<uint32_t>(std::string_view)>;
  absl::StatusOr<std::vector<uint32_t>> ForcedTokens(const Encoder& encode,
                                                     size_t max_bytes = 1024) const;

 private:
  friend class Constraint;
  class WorkScope;
  ConstraintState(std::shared_ptr<Constraint::Shared> shared, ConfigId config)
      : shared_(std::move(shared)), config_(config) {}

  std::shared_ptr<Constraint::Shared> shared_;
  ConfigId config_;
  bool ended_ = false;
  uint64_t most_work_ = UINT64_MAX;
  mutable uint64_t work_ = 0;
};

}  // namespace tandem::gateway::constraint
