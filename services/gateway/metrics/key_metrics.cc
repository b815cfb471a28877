#include "services/gateway/metrics/key_metrics.h"

#include <algorithm>
#include <utility>

namespace tandem::gateway {
namespace {

constexpr char kOther[] = "other";

// At most kMaxKeySeries by name, and one of the others.
std::vector<KeyCounts> Bounded(std::vector<KeyCounts> usage) {
  if (usage.size() <= kMaxKeySeries) return usage;
  KeyCounts rest{.name = kOther};
  std::vector<KeyCounts> bounded;
  for (KeyCounts& counts : usage) {
    if (bounded.size() < kMaxKeySeries && counts.name != kOther) {
      bounded.push_back(std::move(counts));
    } else {
      rest.Add(counts);
    }
  }
  bounded.push_back(std::move(rest));
  return bounded;
}

}  // namespace

void AddKeyMetrics(const ApiKeys& keys, MetricSamples& samples) {
  using M = KeyMetrics;
  const auto value = [](uint64_t count) { return static_cast<double>(count); };
  for (const KeyCounts& key : Bounded(keys.Usage())) {
    samples.Add(M::kRequests, value(key.requests), {key.name});
    samples.Add(M::kRunning, value(key.running), {key.name});
    samples.Add(M::kRejected, value(key.over_requests), {key.name, "requests"});
    samples.Add(M::kRejected, value(key.over_tokens), {key.name, "tokens"});
    samples.Add(M::kRejected, value(key.over_concurrency), {key.name, "concurrency"});
    samples.Add(M::kTokens, value(key.prompt_tokens), {key.name, "prompt"});
    samples.Add(M::kTokens, value(key.completion_tokens), {key.name, "completion"});
  }
  samples.Add(M::kUnknown, value(keys.num_unknown()));
}

}  // namespace tandem::gateway
