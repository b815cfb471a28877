// A drafter that knows the answers: what speculation is worth when so many guesses are right.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "services/gateway/speculation/drafter.h"

namespace tandem::bench {

// Guesses the token that the model is known to choose, or with probability 1 - `right` another.
class ReplayDrafter final : public gateway::Drafter {
 public:
  // Answers by prompt.
  using Answers = std::map<std::vector<uint32_t>, std::vector<uint32_t>>;

  // `right`: 0 to 1.  `answers`: borrowed; must outlive this.
  ReplayDrafter(const Answers& answers, double right, uint32_t vocab_size)
      : answers_(answers), right_(right), vocab_size_(vocab_size) {}

  std::string_view name() const override { return "replay"; }
  void Begin(const gateway::DraftSequence& sequence) override;
  void Decided(uint64_t /*sequence*/, std::span<const uint32_t> /*tokens*/,
               uint32_t /*num_accepted*/) override {}
  void End(uint64_t sequence) override { sequences_.erase(sequence); }
  absl::Duration TimeFor(uint32_t /*num_sequences*/, uint32_t /*max_guesses*/) const override {
    return absl::ZeroDuration();
  }
  void Ask(std::span<const gateway::DraftRequest> requests) override;
  void Take(absl::Time until, std::vector<gateway::DraftChain>& chains) override;

 private:
  struct Sequence {
    const std::vector<uint32_t>* answer = nullptr;  // null: not known
    size_t prompt_len = 0;
  };

  const Answers& answers_;  // Borrowed.
  const double right_;
  const uint32_t vocab_size_;
  std::mt19937 random_{1};
  std::unordered_map<uint64_t, Sequence> sequences_;
  std::vector<gateway::DraftChain> ready_;
};

}  // namespace tandem::bench
