#include "services/gateway/replicas/route.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace tandem::gateway {
namespace {

// How much later, as a part of the soonest forecast, is much later.
constexpr double kMuchLater = 0.5;
// A forecast says half as much after so long without a request.
constexpr double kHalfLifeSeconds = 10.0;
// Prefixes are compared in parts of a prompt: the first words of a template decide nothing.
constexpr uint32_t kPrefixParts = 8;

}  // namespace

std::vector<RouteCandidate> RankReplicas(std::vector<RouteCandidate> candidates,
                                         uint32_t prompt_tokens) {
  const bool measured = std::ranges::all_of(
      candidates, [](const RouteCandidate& candidate) { return candidate.seconds.has_value(); });
  double soonest = 0.0;
  if (measured && !candidates.empty()) {
    soonest = *std::ranges::min_element(candidates, {}, [](const RouteCandidate& candidate) {
                 return *candidate.seconds;
               })->seconds;
  }
  const auto rank = [&](const RouteCandidate& candidate) {
    double later = measured && soonest > 0.0 ? *candidate.seconds / soonest - 1.0 : 0.0;
    if (candidate.num_requests == 0) later *= std::exp2(-candidate.idle_seconds / kHalfLifeSeconds);
    const uint64_t part =
        uint64_t{candidate.cached_tokens} * kPrefixParts / std::max(prompt_tokens, 1u);
    return std::tuple(later > kMuchLater, kPrefixParts - std::min<uint64_t>(part, kPrefixParts),
                      candidate.num_requests, candidate.num_given);
  };
  std::ranges::stable_sort(candidates, {}, rank);
  return candidates;
}

}  // namespace tandem::gateway
