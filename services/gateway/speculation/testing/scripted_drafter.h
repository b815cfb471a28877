// A drafter that knows what the answer will be, and lies as told.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "services/common/base/check.h"
#include "services/gateway/speculation/drafter.h"

namespace tandem::gateway::testing {

struct Script {
  std::string name = "scripted";
  double right = 1.0;    // share of the guesses that are right
  float promise = 0.9f;  // probability that it gives its guesses; 0: it gives none
  uint32_t longest = 6;  // guesses at most
  absl::Duration takes;  // TimeFor; zero: chains are there at once
  uint32_t late_by = 0;  // calls of Take that a chain misses
  uint32_t vocab_size = 1000;
  std::string trouble;
};

class ScriptedDrafter : public Drafter {
 public:
  explicit ScriptedDrafter(Script script) : script_(std::move(script)), random_(1) {}

  // The answer of a sequence whose prompt is `prompt`.
  void Teach(std::vector<uint32_t> prompt, std::vector<uint32_t> answer) {
    taught_[std::move(prompt)] = std::move(answer);
  }

  std::string_view name() const override { return script_.name; }
  std::string_view trouble() const override { return script_.trouble; }
  void Begin(const DraftSequence& sequence) override {
    const std::vector<uint32_t> prompt(sequence.prompt.begin(), sequence.prompt.end());
    TANDEM_CHECK(sequence.sampling != nullptr && !known_.contains(sequence.id));
    Known& known = known_[sequence.id];
    known.prompt_len = prompt.size();
    known.num_decided = prompt.size();
    const auto found = taught_.find(prompt);
    if (found != taught_.end()) known.answer = found->second;
  }
  void Decided(uint64_t sequence, std::span<const uint32_t> tokens,
               uint32_t num_accepted) override {
    Known& known = known_.at(sequence);
    TANDEM_CHECK(!tokens.empty() && num_accepted <= tokens.size());
    for (const uint32_t token : tokens) {
      const size_t n = known.num_decided++ - known.prompt_len;
      if (n < known.answer.size() && known.answer[n] != token) ++num_unexpected_;
    }
    num_accepted_ += num_accepted;
  }
  void End(uint64_t sequence) override { TANDEM_CHECK(known_.erase(sequence) == 1); }
  absl::Duration TimeFor(uint32_t, uint32_t) const override { return script_.takes; }
  void Ask(std::span<const DraftRequest> requests) override {
    for (const DraftRequest& request : requests) {
      const Known& known = known_.at(request.sequence);
      TANDEM_CHECK(request.num_decided == known.num_decided);
      TANDEM_CHECK(request.max_guesses >= 1 && request.max_guesses <= kMaxGuesses);
      ++num_asked_;
      DraftChain chain;
      chain.sequence = request.sequence;
      chain.first_position = request.num_decided;
      const uint32_t longest = std::min(script_.longest, request.max_guesses);
      for (uint32_t i = 0; i < longest; ++i) {
        const size_t n = request.num_decided - known.prompt_len + i;
        const bool right = std::uniform_real_distribution<>()(random_) < script_.right;
        chain.tokens.push_back(right && n < known.answer.size() ? known.answer[n]
                                                                : random_() % script_.vocab_size);
        if (script_.promise > 0) chain.probabilities.push_back(script_.promise);
      }
      waiting_.push_back({std::move(chain), script_.late_by});
    }
  }
  void Take(absl::Time until, std::vector<DraftChain>& chains) override {
    waited_ |= until > absl::Now();
    std::vector<Waiting> still;
    for (Waiting& waiting : waiting_) {
      if (waiting.calls-- > 0) {
        still.push_back(std::move(waiting));
      } else {
        chains.push_back(std::move(waiting.chain));
      }
    }
    waiting_ = std::move(still);
  }

  uint64_t num_asked() const { return num_asked_; }
  uint64_t num_accepted() const { return num_accepted_; }
  // Decided tokens that are not those of the answer that was taught.
  uint64_t num_unexpected() const { return num_unexpected_; }
  // Whether a call of Take was ready to wait.
  bool waited() const { return waited_; }
  size_t num_sequences() const { return known_.size(); }

 private:
  struct Known {
    std::vector<uint32_t> answer;
    size_t prompt_len = 0;
    size_t num_decided = 0;
  };
  struct Waiting {
    DraftChain chain;
    int64_t calls = 0;
  };

  const Script script_;
  std::mt19937 random_;
  std::map<std::vector<uint32_t>, std::vector<uint32_t>> taught_;
  std::map<uint64_t, Known> known_;
  std::vector<Waiting> waiting_;
  uint64_t num_asked_ = 0;
  uint64_t num_accepted_ = 0;
  uint64_t num_unexpected_ = 0;
  bool waited_ = false;
};

}  // namespace tandem::gateway::testing
