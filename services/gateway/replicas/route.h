// Which replica a request should go to.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tandem::gateway {

struct RouteCandidate {
  uint32_t replica = 0;
  uint32_t cached_tokens = 0;  // of the prompt, in its KV cache
  std::optional<double>
      seconds;                // until the request's end there; nullopt: nothing was measured yet
  uint32_t num_requests = 0;  // that it has
  uint64_t num_given = 0;     // since its start
  double idle_seconds = 0.0;  // since it was given the last
};

// The candidates, the best first.  One where the request would end much later is behind the others.
// Among the rest it is the one with the longest prefix; then with fewer requests; then the one that
// was given fewer.  `prompt_tokens`: prefixes that differ by little of them count as equal.
//
// Forecasts are not compared more finely than that: they rest on steps that were measured in other
// conditions, and a replica that a chance measurement keeps requests from is never measured again.
// So a forecast also counts for less the longer the replica has been idle.
std::vector<RouteCandidate> RankReplicas(std::vector<RouteCandidate> candidates,
                                         uint32_t prompt_tokens);

}  // namespace tandem::gateway
