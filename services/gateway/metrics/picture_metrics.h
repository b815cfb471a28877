// Metrics of pictures in requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "services/common/metrics/histogram.h"
#include "services/common/metrics/metric_spec.h"
#include "services/gateway/metrics/gateway_metrics.h"
#include "services/gateway/model/picture_encoder.h"

namespace tandem::gateway {

struct PictureMetrics {
  static constexpr MetricSpec kPictures{
      "tandem_pictures_total",
      MetricType::kCounter,
      "Pictures of requests, by outcome. cached: encoded before, or together with an equal one; "
      "refused: not a picture that is accepted; failed: another error. A request ends with its "
      "first picture that is refused or fails.",
      {"outcome"}};
  static constexpr MetricSpec kSeconds{
      "tandem_picture_seconds",
      MetricType::kHistogram,
      "Time of a stage of a picture, seconds. fetch: from another server, of each that is a URL; "
      "the others of a picture that is not cached. decode: in a process of its own, with the wait "
      "for one; prepare: resize and normalise; encode: a batch of pictures, on the worker.",
      {"stage"},
      kShortTimeBuckets};
  static constexpr MetricSpec kWaiting{"tandem_picture_requests_waiting", MetricType::kGauge,
                                       "Requests whose pictures wait to be decoded."};
  static constexpr MetricSpec kCached{"tandem_picture_cache_pictures", MetricType::kGauge,
                                      "Encoded pictures in the cache."};
  static constexpr MetricSpec kCachedBytes{"tandem_picture_cache_bytes", MetricType::kGauge,
                                           "Memory of encoded pictures in the cache, bytes."};
  static std::vector<MetricSpec> All();
};

// Counts pictures from the process's start.  Thread-safe.
class PictureCounters {
 public:
  void Add(PictureOutcome outcome);
  void AddStage(PictureStage stage, absl::Duration time);
  // Adds every metric of PictureMetrics.
  void AddTo(const PictureEncoder::Counts& counts, MetricSamples& samples) const;

 private:
  std::atomic<uint64_t> pictures_[kNumPictureOutcomes] = {};
  Histogram seconds_[kNumPictureStages] = {
      Histogram(PictureMetrics::kSeconds), Histogram(PictureMetrics::kSeconds),
      Histogram(PictureMetrics::kSeconds), Histogram(PictureMetrics::kSeconds)};
};

}  // namespace tandem::gateway
