// Metrics of each API key.
#pragma once

#include <vector>

#include "services/common/metrics/metric_spec.h"
#include "services/gateway/http/api_keys.h"

namespace tandem::gateway {

// The label `key` is the key's name in the key file, never the key.  The first kMaxKeySeries names
// of the file have series of their own; further keys are counted together as "other".
inline constexpr size_t kMaxKeySeries = 100;

struct KeyMetrics {
  static constexpr MetricSpec kRequests{
      "tandem_key_requests_total",
      MetricType::kCounter,
      "Requests admitted under an API key, by its name in the key file. GET and HEAD do not count, "
      "except tokenize and detokenize.",
      {"key"}};
  static constexpr MetricSpec kRunning{"tandem_key_requests_running",
                                       MetricType::kGauge,
                                       "Requests under an API key that are being answered.",
                                       {"key"}};
  static constexpr MetricSpec kRejected{
      "tandem_key_requests_rejected_total",
      MetricType::kCounter,
      "Requests refused because a limit of their key was reached: requests or tokens a minute, or "
      "concurrency.",
      {"key", "limit"}};
  static constexpr MetricSpec kTokens{"tandem_key_tokens_total",
                                      MetricType::kCounter,
                                      "Tokens of prompts and of answers, by key.",
                                      {"key", "kind"}};
  static constexpr MetricSpec kUnknown{
      "tandem_key_unknown_total", MetricType::kCounter,
      "Requests refused because they had no API key or one that is not in the key file."};
  static std::vector<MetricSpec> All() {
    return {kRequests, kRunning, kRejected, kTokens, kUnknown};
  }
};

void AddKeyMetrics(const ApiKeys& keys, MetricSamples& samples);

}  // namespace tandem::gateway
