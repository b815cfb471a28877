#include "services/common/metrics/histogram.h"

#include <algorithm>

#include "services/common/base/check.h"

namespace tandem {

Histogram::Histogram(const MetricSpec& spec) : spec_(spec), counts_(spec.buckets.size() + 1) {
  TANDEM_CHECK(spec.type == MetricType::kHistogram && !spec.buckets.empty());
  TANDEM_CHECK(std::is_sorted(spec.buckets.begin(), spec.buckets.end()));
}

void Histogram::Observe(double value) {
  // A bucket holds values up to its bound.
  const auto bucket = std::lower_bound(spec_.buckets.begin(), spec_.buckets.end(), value);
  counts_[static_cast<size_t>(bucket - spec_.buckets.begin())].fetch_add(1,
                                                                         std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

void Histogram::AddTo(MetricSamples& samples,
                      std::initializer_list<std::string_view> labels) const {
  std::vector<uint64_t> counts;
  for (const auto& count : counts_) counts.push_back(count.load(std::memory_order_relaxed));
  samples.AddHistogram(spec_, counts, sum_.load(std::memory_order_relaxed), labels);
}

}  // namespace tandem
