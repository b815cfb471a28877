// Guesses what followed the same tokens earlier: in the prompt, the answer, or the client's
// prediction of the answer.
//
//   text:   ... total = price * count ; ... total = price |  -> guesses: * count ; ...
//               ~~~~~~~~~~~~~                ~~~~~~~~~~~~~ longest suffix that occurs earlier
//
// How probable a guess is to be accepted is learned while serving, by the length of the match: every
// decided token says whether the guess for it would have been right, whether it was used or not.
// So text without repetitions costs no rows before its guesses are known to be bad.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "services/gateway/speculation/drafter.h"
#include "services/gateway/speculation/suffix_automaton.h"

namespace tandem::gateway {

// How often guesses were right, by the length of the match that made them.
class HitRates {
 public:
  static constexpr uint32_t kLongest = 24;  // longer matches count as this long

  // An estimate for a match of `length` tokens: where there are few tries here, mostly that of
  // `general`, or if that is null an assumption.
  float At(uint32_t length, const HitRates* general) const;
  void Count(uint32_t length, bool hit);

 private:
  struct Rate {
    float hits = 0.0f;
    float tries = 0.0f;
  };
  std::array<Rate, kLongest + 1> rates_ = {};
};

// Takes about a microsecond a token, on the caller's thread.  Single-thread.
class LookupDrafter : public Drafter {
 public:
  // Tokens of a sequence that are searched at most: the last ones.
  static constexpr size_t kMaxTokens = 32768;
  // Of a prediction at most: the first ones.
  static constexpr size_t kMaxPrediction = kMaxTokens / 2;
  // Shorter matches guess nothing.
  static constexpr uint32_t kShortestMatch = 2;
  // Tokens of a long prompt that a call of Take adds to the searched text.
  static constexpr size_t kTokensATake = 2048;

  std::string_view name() const override { return "lookup"; }
  void Begin(const DraftSequence& sequence) override;
  void Decided(uint64_t sequence, std::span<const uint32_t> tokens, uint32_t num_accepted) override;
  void End(uint64_t sequence) override { texts_.erase(sequence); }
  absl::Duration TimeFor(uint32_t, uint32_t) const override { return absl::ZeroDuration(); }
  void Ask(std::span<const DraftRequest> requests) override;
  void Take(absl::Time until, std::vector<DraftChain>& chains) override;

 private:
  struct Text {
    SuffixAutomaton automaton;
    std::vector<uint32_t> backlog;  // tokens still to be added, from `next` on
    size_t next = 0;
    uint32_t num_decided = 0;  // of the sequence
    // The prediction is the start of the text.  The answer follows it up to here, as far as known.
    uint32_t predicted_next = 0;
    uint32_t predicted_end = 0;
    uint32_t predicted_run = 0;  // tokens in a row that it had right
    HitRates rates;
  };
  // Where guesses come from: a position of the text, and the length of the match before it.
  struct Source {
    uint32_t position = 0;
    uint32_t length = 0;  // 0: no guesses
  };
  static Source SourceOf(const Text& text);
  static uint32_t TokenAt(const Text& text, Source source, std::span<const uint32_t> guesses);
  static void Add(Text& text, uint32_t token);
  // Adds up to `most` tokens of the backlog.
  static void Feed(Text& text, size_t most);
  static void Shorten(Text& text);

  std::unordered_map<uint64_t, Text> texts_;
  HitRates rates_;  // of all sequences
  std::vector<DraftChain> chains_;
};

}  // namespace tandem::gateway
