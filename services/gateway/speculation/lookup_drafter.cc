#include "services/gateway/speculation/lookup_drafter.h"

#include <algorithm>
#include <utility>

#include "services/common/step/step_batch.h"

namespace tandem::gateway {
namespace {

// Stands between the prediction and the prompt: no match crosses it.
constexpr uint32_t kSeparator = kNoToken;
// A prediction is trusted like a match this long before the answer has followed it anywhere.
constexpr uint32_t kPredictionMatch = 8;

// Tries that count fully; older ones fade.
constexpr float kRateMemory = 64.0f;
// How many tries the general rates, or the first assumption, are worth.
constexpr float kPriorTries = 6.0f;

float AssumedRate(uint32_t length) {
  return std::min(0.9f, 0.25f + 0.1f * static_cast<float>(length));
}

}  // namespace

float HitRates::At(uint32_t length, const HitRates* general) const {
  const Rate& rate = rates_[std::min(length, kLongest)];
  const float prior = general == nullptr ? AssumedRate(length) : general->At(length, nullptr);
  return (rate.hits + kPriorTries * prior) / (rate.tries + kPriorTries);
}

void HitRates::Count(uint32_t length, bool hit) {
  Rate& rate = rates_[std::min(length, kLongest)];
  const float keep = rate.tries >= kRateMemory ? 1.0f - 1.0f / kRateMemory : 1.0f;
  rate.hits = keep * rate.hits + (hit ? 1.0f : 0.0f);
  rate.tries = keep * rate.tries + 1.0f;
}

LookupDrafter::Source LookupDrafter::SourceOf(const Text& text) {
  if (text.predicted_next < text.predicted_end) {
    return {text.predicted_next, std::max(text.predicted_run, kPredictionMatch)};
  }
  const uint32_t length = text.automaton.match_len();
  if (length < kShortestMatch) return {};
  return {text.automaton.match_end(), length};
}

// The source runs on into the guesses themselves: text that repeats itself goes on repeating.
uint32_t LookupDrafter::TokenAt(const Text& text, Source source,
                                std::span<const uint32_t> guesses) {
  const std::span<const uint32_t> tokens = text.automaton.text();
  const size_t at = source.position + guesses.size();
  return at < tokens.size() ? tokens[at] : guesses[at - tokens.size()];
}

void LookupDrafter::Add(Text& text, uint32_t token) {
  text.automaton.Append(token);
  if (text.automaton.text().size() >= kMaxTokens) Shorten(text);
}

void LookupDrafter::Feed(Text& text, size_t most) {
  for (size_t n = 0; n < most && text.next < text.backlog.size(); ++n) {
    Add(text, text.backlog[text.next++]);
  }
  if (text.next < text.backlog.size()) return;
  text.backlog = {};
  text.next = 0;
}

// Starts again with the last half, before the tokens that are still to be added.
void LookupDrafter::Shorten(Text& text) {
  const std::span<const uint32_t> tokens = text.automaton.text();
  const std::span<const uint32_t> half = tokens.last(tokens.size() / 2);
  std::vector<uint32_t> backlog(half.begin(), half.end());
  backlog.insert(backlog.end(), text.backlog.begin() + static_cast<std::ptrdiff_t>(text.next),
                 text.backlog.end());
  text.automaton.Clear();
  text.predicted_next = text.predicted_end = 0;
  text.backlog = std::move(backlog);
  text.next = 0;
}

void LookupDrafter::Begin(const DraftSequence& sequence) {
  Text& text = texts_[sequence.id];
  text.num_decided = static_cast<uint32_t>(sequence.prompt.size());
  std::span<const uint32_t> prediction = sequence.prediction;
  prediction = prediction.first(std::min(prediction.size(), kMaxPrediction));
  const size_t room = kMaxTokens - kMaxPrediction - 2;
  std::span<const uint32_t> prompt = sequence.prompt;
  if (prompt.size() > room) prompt = prompt.last(room);
  text.backlog.reserve(prediction.size() + 1 + prompt.size());
  text.backlog.assign(prediction.begin(), prediction.end());
  if (!prediction.empty()) text.backlog.push_back(kSeparator);
  text.backlog.insert(text.backlog.end(), prompt.begin(), prompt.end());
  text.predicted_end = static_cast<uint32_t>(prediction.size());
}

void LookupDrafter::Decided(uint64_t sequence, std::span<const uint32_t> tokens,
                            uint32_t /*num_accepted*/) {
  const auto found = texts_.find(sequence);
  if (found == texts_.end()) return;
  Text& text = found->second;
  text.num_decided += static_cast<uint32_t>(tokens.size());
  if (!text.backlog.empty()) {
    text.backlog.insert(text.backlog.end(), tokens.begin(), tokens.end());
    return;
  }
  for (const uint32_t token : tokens) {
    if (!text.backlog.empty()) {  // shortened meanwhile
      text.backlog.push_back(token);
      continue;
    }
    const Source source = SourceOf(text);
    if (source.length > 0) {
      const bool hit = TokenAt(text, source, {}) == token;
      text.rates.Count(source.length, hit);
      rates_.Count(source.length, hit);
    }
    if (text.predicted_next < text.predicted_end) {
      const bool follows = text.automaton.text()[text.predicted_next] == token;
      text.predicted_run = follows ? text.predicted_run + 1 : 0;
      text.predicted_next = follows ? text.predicted_next + 1 : text.predicted_end;
    }
    Add(text, token);
  }
}

void LookupDrafter::Ask(std::span<const DraftRequest> requests) {
  for (const DraftRequest& request : requests) {
    const auto found = texts_.find(request.sequence);
    if (found == texts_.end()) continue;
    const Text& text = found->second;
    DraftChain chain;
    chain.sequence = request.sequence;
    chain.first_position = request.num_decided;
    const Source source = SourceOf(text);
    const bool ready = text.backlog.empty() && text.num_decided == request.num_decided;
    while (ready && source.length > 0 && chain.tokens.size() < request.max_guesses) {
      const uint32_t token = TokenAt(text, source, chain.tokens);
      if (token == kSeparator) break;
      const auto ahead = static_cast<uint32_t>(chain.tokens.size());
      chain.probabilities.push_back(text.rates.At(source.length + ahead, &rates_));
      chain.tokens.push_back(token);
    }
    chains_.push_back(std::move(chain));
  }
}

void LookupDrafter::Take(absl::Time /*until*/, std::vector<DraftChain>& chains) {
  for (auto& [id, text] : texts_) {
    if (!text.backlog.empty()) Feed(text, kTokensATake);
  }
  for (DraftChain& chain : chains_) chains.push_back(std::move(chain));
  chains_.clear();
}

}  // namespace tandem::gateway
