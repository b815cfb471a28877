#include "services/gateway/constraint/constraint.h"

#include <algorithm>
#include <utility>

#include "services/common/base/status_macros.h"

namespace tandem::gateway::constraint {

Constraint::Constraint(Grammar grammar, std::shared_ptr<const TokenTrie> trie,
                       const MatcherLimits& limits)
    : grammar_(std::move(grammar)),
      trie_(std::move(trie)),
      limits_(limits),
      tables_(PrepareClasses(grammar_.regexes, *trie_)) {}

std::shared_ptr<Constraint> Constraint::Create(Grammar grammar,
                                               std::shared_ptr<const TokenTrie> trie,
                                               const MatcherLimits& limits) {
  return std::shared_ptr<Constraint>(new Constraint(std::move(grammar), std::move(trie), limits));
}

absl::StatusOr<ConstraintState> Constraint::Start() {
  MutexLock lock(mutex_);
  if (current_ != nullptr) {
    MutexLock shared_lock(current_->mutex);
    const Matcher& matcher = current_->matcher;
    if (!matcher.failed() && matcher.core_bytes() <= limits_.cache_bytes) {
      TANDEM_ASSIGN_OR_RETURN(const ConfigId start, current_->matcher.Start());
      return ConstraintState(current_, start);
    }
  }
  current_ = std::make_shared<Shared>(grammar_, trie_, limits_);
  MutexLock shared_lock(current_->mutex);
  TANDEM_ASSIGN_OR_RETURN(const ConfigId start, current_->matcher.Start());
  return ConstraintState(current_, start);
}

void Constraint::NoteWork(uint64_t work, uint64_t most_quick) {
  constexpr int kQuickInARow = 64;
  if (work > most_quick) {
    num_slow_ = kQuickInARow;
  } else if (int before = num_slow_; before > 0) {
    num_slow_.compare_exchange_strong(before, before - 1);
  }
}

size_t Constraint::memory_bytes() const {
  MutexLock lock(mutex_);
  size_t bytes = grammar_.memory_bytes();
  if (current_ != nullptr) {
    MutexLock shared_lock(current_->mutex);
    bytes += current_->matcher.memory_bytes();
  }
  return bytes;
}

// What the matcher does meanwhile counts as the state's work.
class ConstraintState::WorkScope {
 public:
  WorkScope(Matcher& matcher, const ConstraintState& state)
      : matcher_(matcher), state_(state), begin_(matcher.work()) {
    matcher_.LimitWork(state.most_work_ - std::min(state.work_, state.most_work_));
  }
  ~WorkScope() {
    matcher_.LimitWork(UINT64_MAX);
    state_.work_ += matcher_.work() - begin_;
  }
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;

 private:
  Matcher& matcher_;
  const ConstraintState& state_;
  const uint64_t begin_;
};

absl::Status ConstraintState::Mask(std::span<uint32_t> out) const {
  MutexLock lock(shared_->mutex);
  if (ended_) {
    std::fill(out.begin(), out.end(), 0);
    for (const uint32_t token : shared_->matcher.trie().end_tokens()) {
      out[token / 32] |= 1u << (token % 32);
    }
    return absl::OkStatus();
  }
  const WorkScope scope(shared_->matcher, *this);
  return shared_->matcher.Mask(config_, out);
}

absl::StatusOr<bool> ConstraintState::Advance(uint32_t token) {
  MutexLock lock(shared_->mutex);
  Matcher& matcher = shared_->matcher;
  const TokenTrie& trie = matcher.trie();
  if (trie.IsEndToken(token)) {
    if (!ended_ && !matcher.accepting(config_)) return false;
    ended_ = true;
    return true;
  }
  if (ended_ || token >= trie.vocab_size() || trie.bytes(token).empty()) return false;
  const WorkScope scope(matcher, *this);
  TANDEM_ASSIGN_OR_RETURN(const ConfigId next, matcher.Advance(config_, trie.bytes(token)));
  if (next == kDeadConfig) return false;
  config_ = next;
  return true;
}

bool ConstraintState::Accepting() const {
  if (ended_) return true;
  MutexLock lock(shared_->mutex);
  return shared_->matcher.accepting(config_);
}

bool ConstraintState::Done() const {
  if (ended_) return true;
  MutexLock lock(shared_->mutex);
  const WorkScope scope(shared_->matcher, *this);
  return !shared_->matcher.CanGoOn(config_);
}

absl::StatusOr<std::string> ConstraintState::ForcedBytes(size_t max_bytes) const {
  if (ended_) return std::string();
  MutexLock lock(shared_->mutex);
  const WorkScope scope(shared_->matcher, *this);
  ConfigId after;
  return shared_->matcher.Forced(config_, max_bytes, &after);
}

absl::StatusOr<std::vector<uint32_t>> ConstraintState::ForcedTokens(const Encoder& encode,
                                                                    size_t max_bytes) const {
  TANDEM_ASSIGN_OR_RETURN(const std::string forced, ForcedBytes(max_bytes));
  std::vector<uint32_t> tokens;
  if (forced.empty()) return tokens;
  tokens = encode(forced);
  MutexLock lock(shared_->mutex);
  Matcher& matcher = shared_->matcher;
  const WorkScope scope(matcher, *this);
  ConfigId config = config_;
  size_t at = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view rest = std::string_view(forced).substr(at);
    const std::string_view bytes =
        tokens[i] < matcher.trie().vocab_size() ? matcher.trie().bytes(tokens[i]) : "";
    bool stop = bytes.empty() || !rest.starts_with(bytes);
    if (!stop) {
      TANDEM_ASSIGN_OR_RETURN(stop, matcher.LongerTokenFits(config, rest));
    }
    if (stop) {
      tokens.resize(i);
      break;
    }
    TANDEM_ASSIGN_OR_RETURN(config, matcher.Advance(config, bytes));
    at += bytes.size();
  }
  return tokens;
}

}  // namespace tandem::gateway::constraint
