#include "services/common/metrics/metric_spec.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/check.h"

namespace tandem {

size_t MetricSpec::num_labels() const {
  return static_cast<size_t>(std::find(labels.begin(), labels.end(), "") - labels.begin());
}

void MetricSamples::Add(const MetricSpec& spec, double value,
                        std::initializer_list<std::string_view> labels) {
  TANDEM_CHECK(labels.size() == spec.num_labels());
  const auto [it, added] = index_.emplace(spec.name, families_.size());
  if (added) {
    prometheus::MetricFamily& family = families_.emplace_back();
    family.name = std::string(spec.name);
    family.help = std::string(spec.help);
    family.type = spec.type == MetricType::kCounter ? prometheus::MetricType::Counter
                                                    : prometheus::MetricType::Gauge;
  }
  prometheus::ClientMetric& metric = families_[it->second].metric.emplace_back();
  size_t i = 0;
  for (const std::string_view label : labels) {
    metric.label.push_back({std::string(spec.labels[i++]), std::string(label)});
  }
  if (spec.type == MetricType::kCounter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
}

std::vector<prometheus::MetricFamily> MetricSamples::Take() && { return std::move(families_); }

std::string DescribeMetrics(std::string_view heading, const std::vector<MetricSpec>& specs) {
  std::string text = absl::StrFormat(
      "## %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", std::string(heading));
  for (const MetricSpec& spec : specs) {
    std::vector<std::string> labels;
    for (size_t i = 0; i < spec.num_labels(); ++i) {
      labels.push_back(absl::StrFormat("`%s`", std::string(spec.labels[i])));
    }
    absl::StrAppendFormat(&text, "| `%s` | %s | %s | %s |\n", std::string(spec.name),
                          spec.type == MetricType::kCounter ? "counter" : "gauge",
                          absl::StrJoin(labels, ", "), std::string(spec.help));
  }
  return text + "\n";
}

}  // namespace tandem
