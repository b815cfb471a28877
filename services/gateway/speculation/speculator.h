// Decides which guesses the next step verifies: asks the drafters, keeps their record for each
// sequence, and weighs their chains against what rows cost.
//
//   token decided -> TokenDecided ... StepEnds -> drafters learn of it
//   next step due -> Choose: ask, take, ChooseLengths -> guesses for the scheduler, or wait for a
//                    token under way because guesses after it are likely to pay
//
// A chain is scored whether it is used or not: the tokens that are decided say whether its guesses
// were right.  So a sequence whose guesses were bad costs nothing until they are good again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "services/gateway/scheduler/draft_place.h"
#include "services/gateway/speculation/chain_length.h"
#include "services/gateway/speculation/cost_table.h"
#include "services/gateway/speculation/drafter.h"

namespace tandem::gateway {

// What a sequence does in the next step.
struct DraftChoice {
  uint64_t sequence = 0;
  // To verify; empty: none.  Valid until the next Choose.
  std::span<const uint32_t> guesses;
  size_t drafter = 0;  // that made them
  // Of a place under way: its token is worth waiting for, so that guesses can follow it.
  bool wait = false;
};

// Single-thread.
class Speculator {
 public:
  explicit Speculator(std::vector<std::unique_ptr<Drafter>> drafters);

  void Begin(const DraftSequence& sequence);
  // No effect if unknown.
  void End(uint64_t sequence);
  // The next token of the answer.  `guessed`: its row began from an accepted guess.
  void TokenDecided(uint64_t sequence, uint32_t token, bool guessed);
  // All tokens of a step were reported.
  void StepEnds();

  // For the next step of `num_rows` decode rows, those of `places` and maybe others.  `queues`:
  // without guesses it could be queued behind the one under way.  The result is by place, and valid
  // until the next call.  Waits for a drafter only where this is expected to pay.
  std::span<const DraftChoice> Choose(std::span<const DraftPlace> places, uint32_t num_rows,
                                      bool queues);

  // Drafter::Observe, of each.
  void Observe(const ObserveDraftStep& observe) {
    for (const auto& drafter : drafters_) drafter->Observe(observe);
  }
  // Has the drafters give back what they hold.  No call but drafter() follows.
  void Stop();

  // How long the last Choose waited for drafters.
  absl::Duration waited() const { return waited_; }
  CostTable& costs() { return costs_; }
  size_t num_drafters() const { return drafters_.size(); }
  const Drafter& drafter(size_t d) const { return *drafters_[d]; }

 private:
  // Of guesses that were decided, fading: how many were right, and how many their probabilities
  // promised.
  struct Tally {
    double right = 0.0;
    double promised = 0.0;
  };
  // A drafter's latest chain for a sequence, and how its chains did.
  struct Tried {
    DraftChain chain;
    size_t used = 0;  // leading guesses that were decided
    bool asked = false;
    Tally tally;
  };
  struct Record {
    uint32_t num_decided = 0;      // tokens of prompt and answer
    std::vector<uint32_t> recent;  // the last tokens of the answer
    std::vector<uint32_t> untold;  // tokens that the drafters do not know of
    uint32_t num_accepted = 0;     // of them
    std::vector<Tried> tried;      // by drafter
  };
  // What a drafter offers at a place.
  struct Offer {
    size_t drafter = 0;
    std::span<const uint32_t> tokens;
    std::vector<float> probabilities;
    double start = 1.0;
    double yield = 0.0;  // tokens expected of all its guesses
  };

  bool IsSlow(const Drafter& drafter) const;
  // Takes the token into account.
  void Score(size_t drafter, Tried& tried, uint32_t position, uint32_t token);
  // By how much the promised probabilities are to be corrected.
  static double Correction(const Tally& tally);
  void AskQuick(std::span<const DraftPlace> places);
  // Asks slow drafters where they pay, and waits for them.
  void AskSlow(std::span<const DraftPlace> places, const StepTerms& terms);
  // The length at which asking pays most for those places where nothing better is known; 0: it does
  // not.
  uint32_t LengthWorthAsking(size_t drafter, std::span<const DraftPlace> places,
                             const StepTerms& terms);
  void TakeChains(absl::Time until);
  // The best of what the drafters have for a place.
  Offer BestOffer(const DraftPlace& place, const Record& record) const;

  const std::vector<std::unique_ptr<Drafter>> drafters_;
  std::vector<Tally> tallies_;  // by drafter, of all sequences: where a new one begins
  CostTable costs_;
  absl::Duration waited_;
  std::unordered_map<uint64_t, Record> records_;
  std::vector<uint64_t> told_;  // sequences with untold tokens

  // Reused between calls.
  std::vector<DraftChain> taken_;
  std::vector<DraftRequest> requests_;
  std::vector<Offer> offers_;
  std::vector<ChainOffer> chain_offers_;
  std::vector<uint32_t> lengths_;
  std::vector<DraftChoice> choices_;
  std::vector<bool> slow_pays_;  // by place
};

}  // namespace tandem::gateway
