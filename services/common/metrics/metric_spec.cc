#include "services/common/metrics/metric_spec.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/check.h"

namespace tandem {

size_t MetricSpec::num_labels() const {
  return static_cast<size_t>(std::find(labels.begin(), labels.end(), "") - labels.begin());
}

std::string_view MetricTypeName(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      break;
  }
  return "histogram";
}

prometheus::ClientMetric& MetricSamples::NewMetric(const MetricSpec& spec,
                                                   std::initializer_list<std::string_view> labels) {
  TANDEM_CHECK(labels.size() == spec.num_labels());
  const auto [it, added] = index_.emplace(spec.name, families_.size());
  if (added) {
    prometheus::MetricFamily& family = families_.emplace_back();
    family.name = std::string(spec.name);
    family.help = std::string(spec.help);
    family.type = spec.type == MetricType::kCounter ? prometheus::MetricType::Counter
                  : spec.type == MetricType::kGauge ? prometheus::MetricType::Gauge
                                                    : prometheus::MetricType::Histogram;
  }
  prometheus::ClientMetric& metric = families_[it->second].metric.emplace_back();
  size_t i = 0;
  for (const std::string_view label : labels) {
    metric.label.push_back({std::string(spec.labels[i++]), std::string(label)});
  }
  return metric;
}

void MetricSamples::Add(const MetricSpec& spec, double value,
                        std::initializer_list<std::string_view> labels) {
  TANDEM_CHECK(spec.type != MetricType::kHistogram);
  prometheus::ClientMetric& metric = NewMetric(spec, labels);
  if (spec.type == MetricType::kCounter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
}

void MetricSamples::AddHistogram(const MetricSpec& spec, std::span<const uint64_t> counts,
                                 double sum, std::initializer_list<std::string_view> labels) {
  TANDEM_CHECK(spec.type == MetricType::kHistogram && counts.size() == spec.buckets.size() + 1);
  prometheus::ClientMetric::Histogram& histogram = NewMetric(spec, labels).histogram;
  for (size_t i = 0; i < counts.size(); ++i) {
    histogram.sample_count += counts[i];
    const double bound =
        i < spec.buckets.size() ? spec.buckets[i] : std::numeric_limits<double>::infinity();
    histogram.bucket.push_back({.cumulative_count = histogram.sample_count, .upper_bound = bound});
  }
  histogram.sample_sum = sum;
}

void MetricSamples::KeepOnly(std::string_view label, std::string_view value) {
  for (prometheus::MetricFamily& family : families_) {
    std::erase_if(family.metric, [&](const prometheus::ClientMetric& metric) {
      return std::any_of(metric.label.begin(), metric.label.end(),
                         [&](const auto& one) { return one.name == label && one.value != value; });
    });
  }
}

std::vector<prometheus::MetricFamily> MetricSamples::Take() && { return std::move(families_); }

std::string StatusCodeLabel(int code) {
  const std::string name = absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
  return name.empty() ? "unknown" : absl::AsciiStrToLower(name);
}

std::string DescribeMetrics(std::string_view heading, const std::vector<MetricSpec>& specs) {
  std::string text = absl::StrFormat(
      "## %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", std::string(heading));
  for (const MetricSpec& spec : specs) {
    std::vector<std::string> labels;
    for (size_t i = 0; i < spec.num_labels(); ++i) {
      labels.push_back(absl::StrFormat("`%s`", std::string(spec.labels[i])));
    }
    absl::StrAppendFormat(&text, "| `%s` | %s | %s | %s |\n", std::string(spec.name),
                          std::string(MetricTypeName(spec.type)), absl::StrJoin(labels, ", "),
                          std::string(spec.help));
  }
  return text + "\n";
}

}  // namespace tandem
