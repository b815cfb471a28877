#include "services/gateway/metrics/picture_metrics.h"

#include <string_view>

namespace tandem::gateway {
namespace {

constexpr std::string_view kOutcomes[kNumPictureOutcomes] = {"cached", "encoded", "refused",
                                                             "failed"};

}  // namespace

std::vector<MetricSpec> PictureMetrics::All() {
  return {kPictures, kSeconds, kWaiting, kCached, kCachedBytes};
}

void PictureCounters::Add(PictureOutcome outcome) {
  pictures_[static_cast<int>(outcome)].fetch_add(1, std::memory_order_relaxed);
}

void PictureCounters::AddStage(PictureStage stage, absl::Duration time) {
  seconds_[static_cast<int>(stage)].Observe(absl::ToDoubleSeconds(time));
}

void PictureCounters::AddTo(const PictureEncoder::Counts& counts, MetricSamples& samples) const {
  using M = PictureMetrics;
  for (int outcome = 0; outcome < kNumPictureOutcomes; ++outcome) {
    const uint64_t count = pictures_[outcome].load(std::memory_order_relaxed);
    samples.Add(M::kPictures, static_cast<double>(count), {kOutcomes[outcome]});
  }
  for (int stage = 0; stage < kNumPictureStages; ++stage) {
    seconds_[stage].AddTo(samples, {PictureStageName(static_cast<PictureStage>(stage))});
  }
  samples.Add(M::kWaiting, static_cast<double>(counts.waiting));
  samples.Add(M::kCached, static_cast<double>(counts.cached));
  samples.Add(M::kCachedBytes, static_cast<double>(counts.cached_bytes));
}

}  // namespace tandem::gateway
