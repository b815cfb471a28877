#include "services/gateway/constraint/match/matcher.h"

#include <algorithm>
#include <utility>

#include "services/common/base/status_macros.h"

namespace tandem::gateway::constraint {

Matcher::Matcher(Grammar grammar, std::shared_ptr<const TokenTrie> trie,
                 const MatcherLimits& limits)
    : grammar_(std::move(grammar)),
      trie_(std::move(trie)),
      limits_(limits),
      sets_(grammar_),
      walker_(grammar_.regexes, *trie_),
      tokens_(trie_->mask_words()) {
  grammar_.regexes.set_limit(limits.memory_bytes);
  configs_.emplace_back();
}

size_t Matcher::core_bytes() const {
  return grammar_.memory_bytes() + sets_.memory_bytes() + config_bytes_ + tokens_.memory_bytes();
}

size_t Matcher::memory_bytes() const { return core_bytes() + walker_.memory_bytes() + mask_bytes_; }

absl::Status Matcher::Check() {
  const bool refused = std::exchange(refused_, false) || walker_.TakeExceeded();
  // However large the rest is, caches have some room: or everything would be found again for each token.
  const size_t least = limits_.cache_bytes / 8, core = core_bytes();
  failed_ = failed_ || sets_.overflowed() || grammar_.regexes.overflowed() ||
            core + least > limits_.memory_bytes;
  if (!failed_ && memory_bytes() > std::max(limits_.cache_bytes, core + least)) {
    walker_.DropCaches();
    for (Config& config : configs_) config.mask.reset();
    mask_bytes_ = 0;
  }
  if (failed_ || refused) {
    return absl::ResourceExhaustedError(
        "constraint: following it takes more memory or time than a constraint may; simplify it");
  }
  return absl::OkStatus();
}

ConfigId Matcher::Intern(std::vector<Thread> threads, bool accepting) {
  if (threads.empty() && !accepting) return kDeadConfig;
  std::sort(threads.begin(), threads.end());
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  std::vector<uint32_t> key;
  key.reserve(threads.size() * 2 + 1);
  for (const Thread& thread : threads) key.insert(key.end(), {thread.set, thread.regex});
  if (accepting) key.push_back(1);
  const auto [found, added] =
      config_ids_.try_emplace(std::move(key), static_cast<ConfigId>(configs_.size()));
  if (added) {
    config_bytes_ += sizeof(Config) + threads.size() * 2 * sizeof(Thread) + 64;
    threads.shrink_to_fit();
    configs_.push_back({std::move(threads), accepting, nullptr});
  }
  return found->second;
}

void Matcher::Enter(SetId set, std::vector<Thread>& threads, bool& accepting) {
  if (set == kNoSet) return;
  accepting = accepting || sets_.accepting(set);
  if (sets_.scan(set) != kNothing) threads.push_back({set, sets_.scan(set)});
}

absl::StatusOr<ConfigId> Matcher::Start() {
  std::vector<Thread> threads;
  bool accepting = false;
  BeginCall();
  Enter(sets_.Start(), threads, accepting);
  TANDEM_RETURN_IF_ERROR(Check());
  return Intern(std::move(threads), accepting);
}

// Whether anything is left.
bool Matcher::Step(std::vector<Thread>& threads, bool& accepting, uint8_t byte, bool keep) {
  RegexArena& regexes = grammar_.regexes;
  std::vector<Thread> next;
  accepting = false;
  for (const Thread& thread : threads) {
    const RegexId regex =
        keep ? walker_.Step(thread.regex, byte) : walker_.StepOnce(thread.regex, byte);
    if (regex == kNothing) continue;
    if (regexes.node(regex).accepts) {
      std::vector<uint32_t> tags;
      regexes.AcceptedTags(regex, tags);
      for (const uint32_t tag : tags) Enter(sets_.Goto(thread.set, tag), next, accepting);
      if (regexes.OnlyTags(regex)) continue;
    }
    next.push_back({thread.set, regex});
  }
  if (next.size() > 1) {
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
  }
  refused_ = refused_ || next.size() > kMaxThreads;
  threads = std::move(next);
  return !threads.empty() || accepting;
}

void Matcher::LimitWork(uint64_t most) {
  work_end_ = most < UINT64_MAX - work() ? work() + most : UINT64_MAX;
}

absl::StatusOr<ConfigId> Matcher::Advance(ConfigId config, std::string_view bytes) {
  if (bytes.empty()) return config;
  BeginCall();
  std::vector<Thread> threads = configs_[config].threads;
  bool accepting = false;
  for (const char c : bytes) {
    if (refused_ || walker_.exceeded()) break;
    if (!Step(threads, accepting, static_cast<uint8_t>(c), false)) break;
  }
  TANDEM_RETURN_IF_ERROR(Check());
  return Intern(std::move(threads), accepting);
}

absl::Status Matcher::Mask(ConfigId id, std::span<uint32_t> out) {
  BeginCall();
  if (configs_[id].mask == nullptr) {
    auto made = std::make_unique<TokenSet>(MakeMask(std::vector<Thread>(configs_[id].threads)));
    TANDEM_RETURN_IF_ERROR(Check());
    mask_bytes_ += sizeof(TokenSet) + made->memory_bytes();
    for (const auto& mask : made->masks) {
      if (mask.use_count() == 1) mask_bytes_ += mask->size() * sizeof(uint32_t);
    }
    configs_[id].mask = std::move(made);
  }
  const TokenSet& set = *configs_[id].mask;
  if (set.masks.empty()) {
    std::fill(out.begin(), out.end(), 0);
  } else {
    std::copy(set.masks[0]->begin(), set.masks[0]->end(), out.begin());
    for (size_t i = 1; i < set.masks.size(); ++i) {
      const uint32_t* words = set.masks[i]->data();
      for (size_t w = 0; w < out.size(); ++w) out[w] |= words[w];
    }
  }
  for (const uint32_t token : set.tokens) out[token / 32] |= 1u << (token % 32);
  if (configs_[id].accepting) {
    for (const uint32_t token : trie_->end_tokens()) out[token / 32] |= 1u << (token % 32);
  }
  return Check();
}

TokenSet Matcher::MakeMask(const std::vector<Thread>& threads) {
  visited_.clear();
  for (const Thread& thread : threads) {
    const RegexTokens& tokens = walker_.Tokens(thread.regex);
    tokens_.Add(tokens.inside);
    for (size_t i = 0; i < tokens.exits.size();) {
      const uint32_t tag = tokens.exits[i].tag;
      const SetId set = sets_.Goto(thread.set, tag);
      const RegexId start = set == kNoSet ? kNothing : sets_.scan(set);
      while (i < tokens.exits.size() && tokens.exits[i].tag == tag) {
        const uint8_t byte = tokens.exits[i].byte;
        const RegexId next = start == kNothing ? kNothing : walker_.Step(start, byte);
        for (;
             i < tokens.exits.size() && tokens.exits[i].tag == tag && tokens.exits[i].byte == byte;
             ++i) {
          if (next != kNothing) Arrive(set, next, tokens.exits[i].node);
        }
      }
    }
  }
  return tokens_.Take();
}

// The children of `node` with a fresh lexer in `set`.
void Matcher::WalkSet(SetId set, uint32_t node) {
  if (set == kNoSet || sets_.scan(set) == kNothing) return;
  if (!visited_.insert(uint64_t{set} << 32 | node).second) return;
  Walk(set, sets_.scan(set), node);
}

void Matcher::Walk(SetId set, RegexId regex, uint32_t node_id) {
  const TrieNode node = trie_->node(node_id);
  walker_.CountVisits(node.num_children);
  if (walker_.exceeded()) return;
  for (uint32_t i = 0; i < node.num_children; ++i) {
    const RegexId next = walker_.Step(regex, trie_->node(node.first_child + i).byte);
    if (next != kNothing) Arrive(set, next, node.first_child + i);
  }
}

void Matcher::Arrive(SetId set, RegexId regex, uint32_t node_id) {
  const TrieNode& node = trie_->node(node_id);
  trie_->ForEachToken(node, [&](uint32_t token) { tokens_.Add(token); });
  if (node.num_children == 0) return;
  const RegexArena& regexes = grammar_.regexes;
  if (regexes.node(regex).accepts) {
    std::vector<uint32_t> tags;
    regexes.AcceptedTags(regex, tags);
    for (const uint32_t tag : tags) WalkSet(sets_.Goto(set, tag), node_id);
    if (grammar_.regexes.OnlyTags(regex)) return;
  }
  Walk(set, regex, node_id);
}

bool Matcher::CanGoOn(ConfigId config) {
  BeginCall();
  return std::ranges::any_of(configs_[config].threads, [this](const Thread& thread) {
    for (ByteSet left = ByteSet::All(); !left.empty();) {
      ByteSet alike;
      if (grammar_.regexes.Derive(thread.regex, left.First(), &alike) != kNothing) return true;
      if (walker_.exceeded()) return true;
      left = left & ~alike;
    }
    return false;
  });
}

absl::StatusOr<std::string> Matcher::Forced(ConfigId config, size_t max_bytes, ConfigId* after) {
  std::string forced;
  std::vector<Thread> threads = configs_[config].threads;
  bool accepting = configs_[config].accepting;
  BeginCall();
  while (forced.size() < max_bytes && !accepting && !refused_ && !walker_.exceeded()) {
    std::optional<uint8_t> only;
    bool several = false;
    for (const Thread& thread : threads) {
      for (ByteSet left = ByteSet::All(); !left.empty() && !several;) {
        ByteSet alike;
        const RegexId next = grammar_.regexes.Derive(thread.regex, left.First(), &alike);
        alike = alike & left;
        if (next != kNothing) {
          several = alike.size() > 1 || (only && *only != alike.First());
          only = alike.First();
        }
        left = left & ~alike;
      }
    }
    if (several || !only) break;
    forced.push_back(static_cast<char>(*only));
    Step(threads, accepting, *only, false);
  }
  TANDEM_RETURN_IF_ERROR(Check());
  *after = forced.empty() ? config : Intern(std::move(threads), accepting);
  return forced;
}

absl::StatusOr<bool> Matcher::LongerTokenFits(ConfigId config, std::string_view bytes) {
  uint32_t node = 0;
  std::vector<Thread> threads = configs_[config].threads;
  bool accepting = false;
  BeginCall();
  for (const char c : bytes) {
    const TrieNode& parent = trie_->node(node);
    uint32_t next = kNoToken;
    for (uint32_t i = 0; i < parent.num_children && next == kNoToken; ++i) {
      if (trie_->node(parent.first_child + i).byte == static_cast<uint8_t>(c)) {
        next = parent.first_child + i;
      }
    }
    if (next == kNoToken) return false;
    node = next;
    if (refused_ || walker_.exceeded()) break;
    if (!Step(threads, accepting, static_cast<uint8_t>(c), false)) return false;
  }
  visited_.clear();
  for (const Thread& thread : threads) Walk(thread.set, thread.regex, node);
  const TokenSet longer = tokens_.Take();
  TANDEM_RETURN_IF_ERROR(Check());
  return !longer.masks.empty() || !longer.tokens.empty();
}

}  // namespace tandem::gateway::constraint
