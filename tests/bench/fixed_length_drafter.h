// A drafter whose chains always have the same length: what share of them is accepted, whatever
// steps cost on this machine.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "services/gateway/speculation/drafter.h"

namespace tandem::bench {

// Forwards to another drafter, with at most `length` guesses a chain, and is waited for.
class FixedLengthDrafter final : public gateway::Drafter {
 public:
  FixedLengthDrafter(std::unique_ptr<gateway::Drafter> drafter, uint32_t length)
      : drafter_(std::move(drafter)), length_(length) {}

  std::string_view name() const override { return drafter_->name(); }
  std::string_view trouble() const override { return drafter_->trouble(); }
  void Stop() override { drafter_->Stop(); }
  void Begin(const gateway::DraftSequence& sequence) override { drafter_->Begin(sequence); }
  void Decided(uint64_t sequence, std::span<const uint32_t> tokens,
               uint32_t num_accepted) override {
    drafter_->Decided(sequence, tokens, num_accepted);
  }
  void End(uint64_t sequence) override { drafter_->End(sequence); }
  // However busy the machine is, no chain comes late.
  absl::Duration TimeFor(uint32_t /*num_sequences*/, uint32_t /*max_guesses*/) const override {
    return absl::Seconds(10);
  }
  void Ask(std::span<const gateway::DraftRequest> requests) override {
    std::vector<gateway::DraftRequest> limited(requests.begin(), requests.end());
    for (gateway::DraftRequest& request : limited) {
      request.max_guesses = std::min(request.max_guesses, length_);
    }
    drafter_->Ask(limited);
  }
  void Take(absl::Time until, std::vector<gateway::DraftChain>& chains) override {
    const size_t before = chains.size();
    drafter_->Take(until, chains);
    // Unsaid, they are the record's: every guess is verified.
    for (size_t i = before; i < chains.size(); ++i) chains[i].probabilities.clear();
  }

 private:
  const std::unique_ptr<gateway::Drafter> drafter_;
  const uint32_t length_;
};

}  // namespace tandem::bench
