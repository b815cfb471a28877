#include "services/gateway/speculation/chain_length.h"

#include <algorithm>
#include <cstddef>

namespace tandem::gateway {
namespace {

struct Guess {
  double yield = 0.0;  // tokens that it adds, expected
  size_t offer = 0;
};

}  // namespace

double ChooseLengths(const CostTable& costs, const StepTerms& terms,
                     std::span<const ChainOffer> offers, std::vector<uint32_t>& lengths) {
  lengths.assign(offers.size(), 0);
  std::vector<Guess> guesses;
  for (size_t o = 0; o < offers.size(); ++o) {
    double yield = offers[o].start;
    for (const float probability : offers[o].probabilities) {
      yield *= std::clamp(static_cast<double>(probability), 0.0, 1.0);
      guesses.push_back({yield, o});
    }
  }
  // A chain's yields never grow, and equal ones stay in order: its first guesses come first.
  std::stable_sort(guesses.begin(), guesses.end(),
                   [](const Guess& a, const Guess& b) { return a.yield > b.yield; });
  double tokens = terms.num_rows;
  const double plain = terms.plain_seconds > 0.0 ? terms.plain_seconds : costs.Step(terms.num_rows);
  double best = kLeastGain * tokens / (plain + terms.plain_gap);
  size_t num_best = 0;
  for (size_t n = 0; n < guesses.size(); ++n) {
    tokens += guesses[n].yield;
    const auto num_rows = static_cast<uint32_t>(terms.num_rows + n + 1);
    const double seconds = costs.Step(num_rows) + costs.Gap() + terms.extra_seconds;
    if (tokens <= best * seconds) continue;
    best = tokens / seconds;
    num_best = n + 1;
  }
  for (size_t n = 0; n < num_best; ++n) ++lengths[guesses[n].offer];
  return num_best > 0 ? best : 0.0;
}

}  // namespace tandem::gateway
