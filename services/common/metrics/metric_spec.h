// Metrics as declared data: each is named once, in its service's table, with what it means; the
// page that Prometheus reads and docs/metrics.md both come from there.
//
//   struct LoaderMetrics {
//     static constexpr MetricSpec kWeightBytes{"tandem_loader_weight_bytes", MetricType::kGauge,
//                                              "Bytes of packed weights in memory.", {"model"}};
//   };
//   samples.Add(LoaderMetrics::kWeightBytes, bytes, {name});
//
// Names follow Prometheus's rules: base units, _total for counters.  Labels take few values: names
// of workers, stages and models, never anything that a client can make up.
#pragma once

#include <prometheus/metric_family.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };
// "counter".
std::string_view MetricTypeName(MetricType type);

inline constexpr size_t kMaxMetricLabels = 4;

struct MetricSpec {
  std::string_view name;
  MetricType type = MetricType::kGauge;
  std::string_view help;                                       // a sentence, with the unit
  std::array<std::string_view, kMaxMetricLabels> labels = {};  // the empty ones come last
  std::span<const double> buckets = {};  // a histogram's: ascending upper bounds, without +Inf

  size_t num_labels() const;
};

// Values of one scrape.
class MetricSamples {
 public:
  // One value for each label.
  void Add(const MetricSpec& spec, double value,
           std::initializer_list<std::string_view> labels = {});
  // `counts`: by bucket, not cumulative, +Inf's last; `sum`: of what was counted.
  void AddHistogram(const MetricSpec& spec, std::span<const uint64_t> counts, double sum,
                    std::initializer_list<std::string_view> labels = {});
  // Drops values whose label `label` is there and is not `value`.
  void KeepOnly(std::string_view label, std::string_view value);
  // In the order in which each metric was first added.
  std::vector<prometheus::MetricFamily> Take() &&;

 private:
  prometheus::ClientMetric& NewMetric(const MetricSpec& spec,
                                      std::initializer_list<std::string_view> labels);
  std::vector<prometheus::MetricFamily> families_;
  std::map<std::string_view, size_t> index_;
};

// The label for a gRPC code: "resource_exhausted"; "unknown" for one there is not.
std::string StatusCodeLabel(int code);

// A section of docs/metrics.md: a heading and a table.
std::string DescribeMetrics(std::string_view heading, const std::vector<MetricSpec>& specs);

}  // namespace tandem
