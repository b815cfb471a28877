#include "services/gateway/speculation/speculator.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace tandem::gateway {
namespace {

// A guess whose drafter does not say how probable it is.
constexpr float kUnsaid = 0.7f;
// No guess is certain.
constexpr float kMostProbable = 0.985f;
// How many guesses the promised probabilities are worth before the record corrects them.
constexpr double kPromiseWeight = 3.0;
constexpr double kRecordMemory = 64.0;  // guesses that count fully
// Most guesses of earlier sequences that count for a new one.
constexpr double kInherited = 12.0;
constexpr size_t kMostRecent = 64;
// More decode rows than this leave no room for guesses to pay, and are not worth the arithmetic.
constexpr uint32_t kMostRows = 64;
// A slow drafter that does not pay is asked every so many tokens, to learn whether it would.
constexpr uint32_t kProbeEvery = 64;
// How much longer than usual a drafter may take.
constexpr double kPatience = 1.5;

float ProbabilityOf(const DraftChain& chain, size_t guess) {
  return chain.probabilities.empty() ? kUnsaid : chain.probabilities[guess];
}

double YieldOf(double start, std::span<const float> probabilities) {
  double yield = 0.0;
  for (const float probability : probabilities) yield += start *= probability;
  return yield;
}

}  // namespace

Speculator::Speculator(std::vector<std::unique_ptr<Drafter>> drafters)
    : drafters_(std::move(drafters)), tallies_(drafters_.size()) {}

void Speculator::Stop() {
  for (const auto& drafter : drafters_) drafter->Stop();
}

bool Speculator::IsSlow(const Drafter& drafter) const {
  return drafter.TimeFor(1, 1) > absl::ZeroDuration();
}

void Speculator::Begin(const DraftSequence& sequence) {
  Record& record = records_[sequence.id];
  record.num_decided = static_cast<uint32_t>(sequence.prompt.size());
  record.tried.resize(drafters_.size());
  for (size_t d = 0; d < drafters_.size(); ++d) {
    const Tally& all = tallies_[d];
    const double share = all.promised > kInherited ? kInherited / all.promised : 1.0;
    record.tried[d].tally = {.right = share * all.right, .promised = share * all.promised};
  }
  for (const auto& drafter : drafters_) drafter->Begin(sequence);
}

void Speculator::End(uint64_t sequence) {
  if (records_.erase(sequence) == 0) return;
  for (const auto& drafter : drafters_) drafter->End(sequence);
}

void Speculator::Score(size_t drafter, Tried& tried, uint32_t position, uint32_t token) {
  tried.asked = false;
  if (tried.used >= tried.chain.tokens.size()) return;
  if (tried.chain.first_position + tried.used != position) {
    tried.chain.tokens.clear();
    return;
  }
  const bool right = tried.chain.tokens[tried.used] == token;
  for (Tally* tally : {&tried.tally, &tallies_[drafter]}) {
    const double keep = tally->promised >= kRecordMemory ? 1.0 - 1.0 / kRecordMemory : 1.0;
    tally->right = keep * tally->right + (right ? 1.0 : 0.0);
    tally->promised = keep * tally->promised + ProbabilityOf(tried.chain, tried.used);
  }
  if (right) {
    ++tried.used;
  } else {
    tried.chain.tokens.clear();
  }
}

double Speculator::Correction(const Tally& tally) {
  return (tally.right + kPromiseWeight) / (tally.promised + kPromiseWeight);
}

void Speculator::TokenDecided(uint64_t sequence, uint32_t token, bool guessed) {
  const auto found = records_.find(sequence);
  if (found == records_.end()) return;
  Record& record = found->second;
  for (size_t d = 0; d < drafters_.size(); ++d) {
    Score(d, record.tried[d], record.num_decided, token);
  }
  ++record.num_decided;
  if (record.recent.size() >= kMostRecent) {
    record.recent.erase(record.recent.begin(), record.recent.begin() + kMostRecent / 2);
  }
  record.recent.push_back(token);
  if (record.untold.empty()) told_.push_back(sequence);
  record.untold.push_back(token);
  record.num_accepted += guessed ? 1 : 0;
}

void Speculator::StepEnds() {
  for (const uint64_t sequence : told_) {
    const auto found = records_.find(sequence);
    if (found == records_.end()) continue;
    Record& record = found->second;
    for (const auto& drafter : drafters_) {
      drafter->Decided(sequence, record.untold, record.num_accepted);
    }
    record.untold.clear();
    record.num_accepted = 0;
  }
  told_.clear();
}

void Speculator::TakeChains(absl::Time until) {
  for (size_t d = 0; d < drafters_.size(); ++d) {
    taken_.clear();
    drafters_[d]->Take(IsSlow(*drafters_[d]) ? until : absl::InfinitePast(), taken_);
    for (DraftChain& chain : taken_) {
      const auto found = records_.find(chain.sequence);
      if (found == records_.end()) continue;
      Record& record = found->second;
      Tried& tried = record.tried[d];
      const uint32_t first = chain.first_position;
      tried.chain = std::move(chain);
      tried.used = 0;
      // A late chain: the tokens decided since then say how much of it is still of use.
      const auto oldest = record.num_decided - static_cast<uint32_t>(record.recent.size());
      if (first > record.num_decided || first < oldest) {
        tried.chain.tokens.clear();
        continue;
      }
      for (uint32_t p = first; p < record.num_decided; ++p) {
        Score(d, tried, p, record.recent[p - oldest]);
      }
    }
  }
}

void Speculator::AskQuick(std::span<const DraftPlace> places) {
  for (size_t d = 0; d < drafters_.size(); ++d) {
    if (IsSlow(*drafters_[d])) continue;
    requests_.clear();
    for (const DraftPlace& place : places) {
      Record& record = records_.at(place.sequence);
      if (record.tried[d].asked) continue;
      record.tried[d].asked = true;
      requests_.push_back({.sequence = place.sequence,
                           .num_decided = record.num_decided,
                           .max_guesses = kMaxGuesses});
    }
    if (!requests_.empty()) drafters_[d]->Ask(requests_);
  }
}

uint32_t Speculator::LengthWorthAsking(size_t drafter, std::span<const DraftPlace> places,
                                       const StepTerms& terms) {
  uint32_t best_length = 0;
  double best = 0.0;
  for (uint32_t length = 1; length <= kMaxGuesses; length += length < 4 ? 1 : 2) {
    const auto count = static_cast<uint32_t>(places.size());
    StepTerms with = terms;
    with.extra_seconds = absl::ToDoubleSeconds(drafters_[drafter]->TimeFor(count, length));
    std::vector<std::vector<float>> probabilities;
    for (const DraftPlace& place : places) {
      const double rate = kUnsaid * Correction(records_.at(place.sequence).tried[drafter].tally);
      probabilities.emplace_back(std::min(length, place.max_guesses),
                                 std::min(static_cast<float>(rate), kMostProbable));
    }
    chain_offers_.clear();
    for (const std::vector<float>& of_place : probabilities) chain_offers_.push_back({of_place});
    const double rate = ChooseLengths(costs_, with, chain_offers_, lengths_);
    if (rate <= best) continue;
    best = rate;
    best_length = length;
  }
  return best_length;
}

void Speculator::AskSlow(std::span<const DraftPlace> places, const StepTerms& terms) {
  slow_pays_.assign(places.size(), false);
  for (size_t d = 0; d < drafters_.size(); ++d) {
    const Drafter& drafter = *drafters_[d];
    if (!IsSlow(drafter) || !drafter.trouble().empty()) continue;
    // Sequences for which nothing better is known.
    std::vector<DraftPlace> asked;
    std::vector<size_t> indices;
    for (size_t i = 0; i < places.size(); ++i) {
      const Record& record = records_.at(places[i].sequence);
      const double rate = std::min(1.0, kUnsaid * Correction(record.tried[d].tally));
      if (BestOffer(places[i], record).yield >= rate / (1.0 - std::min(rate, 0.98))) continue;
      asked.push_back(places[i]);
      indices.push_back(i);
    }
    if (asked.empty()) continue;
    const uint32_t length = LengthWorthAsking(d, asked, terms);
    for (const size_t i : indices) slow_pays_[i] = slow_pays_[i] || length > 0;
    requests_.clear();
    for (const DraftPlace& place : asked) {
      Record& record = records_.at(place.sequence);
      Tried& tried = record.tried[d];
      if (place.under_way || tried.asked || tried.used < tried.chain.tokens.size()) continue;
      if (length == 0 && record.num_decided % kProbeEvery != 0) continue;
      tried.asked = true;
      requests_.push_back({.sequence = place.sequence,
                           .num_decided = record.num_decided,
                           .max_guesses = std::clamp(length, 1u, place.max_guesses)});
    }
    if (requests_.empty()) continue;
    drafters_[d]->Ask(requests_);
    if (length == 0) continue;
    const auto count = static_cast<uint32_t>(requests_.size());
    const absl::Time now = absl::Now();
    TakeChains(now + kPatience * drafter.TimeFor(count, length));
    waited_ += absl::Now() - now;
  }
}

Speculator::Offer Speculator::BestOffer(const DraftPlace& place, const Record& record) const {
  Offer best;
  for (size_t d = 0; d < drafters_.size(); ++d) {
    const Tried& tried = record.tried[d];
    const DraftChain& chain = tried.chain;
    if (tried.used >= chain.tokens.size()) continue;
    const auto correction = static_cast<float>(Correction(tried.tally));
    const auto probability = [&](size_t guess) {
      return std::min(kMostProbable, correction * ProbabilityOf(chain, guess));
    };
    Offer offer{.drafter = d};
    size_t first = tried.used;
    // Its first guess is the token under way, and the next rows come after that.
    if (place.under_way) offer.start = probability(first++);
    const size_t end = std::min(chain.tokens.size(), first + place.max_guesses);
    if (first >= end) continue;
    offer.tokens = std::span(chain.tokens).subspan(first, end - first);
    for (size_t guess = first; guess < end; ++guess) {
      offer.probabilities.push_back(probability(guess));
    }
    offer.yield = YieldOf(offer.start, offer.probabilities);
    if (offer.yield > best.yield) best = std::move(offer);
  }
  return best;
}

std::span<const DraftChoice> Speculator::Choose(std::span<const DraftPlace> places,
                                                uint32_t num_rows, bool queues) {
  choices_.clear();
  waited_ = absl::ZeroDuration();
  for (const DraftPlace& place : places) choices_.push_back({.sequence = place.sequence});
  AskQuick(places);
  TakeChains(absl::InfinitePast());
  if (places.empty() || num_rows == 0 || num_rows > kMostRows) return choices_;
  // If it is not known what plain decoding takes, guesses have to pay even if it takes the least that it
  // can.  Else plain decoding is measured now.
  const double plain = costs_.StepAtLeast(num_rows);
  if (plain <= 0.0) return choices_;
  StepTerms terms{
      .num_rows = num_rows, .plain_seconds = plain, .plain_gap = queues ? 0.0 : costs_.Gap()};
  AskSlow(places, terms);
  offers_.clear();
  chain_offers_.clear();
  for (const DraftPlace& place : places) {
    offers_.push_back(BestOffer(place, records_.at(place.sequence)));
  }
  for (const Offer& offer : offers_) chain_offers_.push_back({offer.probabilities, offer.start});
  ChooseLengths(costs_, terms, chain_offers_, lengths_);
  for (size_t i = 0; i < places.size(); ++i) {
    DraftChoice& choice = choices_[i];
    choice.drafter = offers_[i].drafter;
    if (places[i].under_way) {
      choice.wait = lengths_[i] > 0 || slow_pays_[i];
    } else {
      choice.guesses = offers_[i].tokens.first(lengths_[i]);
    }
  }
  return choices_;
}

}  // namespace tandem::gateway
