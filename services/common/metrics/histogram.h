// Distributions: counted by many threads without a lock, shown as a Prometheus histogram.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "services/common/metrics/metric_spec.h"

namespace tandem {

// Upper bounds of buckets as OpenTelemetry's semantic conventions for generative AI give them
// (opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics): of a whole request, of the time to
// its first token and of the time per token after it, in seconds; and of its tokens.
inline constexpr double kGenAiDurationBuckets[] = {0.01, 0.02, 0.04, 0.08,  0.16,  0.32,  0.64,
                                                   1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92};
inline constexpr double kGenAiFirstTokenBuckets[] = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0};
inline constexpr double kGenAiTokenTimeBuckets[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                                                    0.3,  0.4,   0.5,  0.75,  1.0, 2.5};
inline constexpr double kGenAiTokenBuckets[] = {
    1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864};
// Of rows in a step.
inline constexpr double kRowBuckets[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};

// Thread-safe.
class Histogram {
 public:
  // REQUIRES `spec` is a histogram's, with ascending buckets.  Borrowed; must outlive this.
  explicit Histogram(const MetricSpec& spec);

  void Observe(double value);
  // What was observed so far.
  void AddTo(MetricSamples& samples, std::initializer_list<std::string_view> labels = {}) const;

 private:
  const MetricSpec& spec_;
  std::vector<std::atomic<uint64_t>> counts_;  // by bucket, not cumulative; the last is +Inf's
  std::atomic<double> sum_{0};
};

}  // namespace tandem
