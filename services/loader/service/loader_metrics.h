// What the loader tells Prometheus.
#pragma once

#include <vector>

#include "services/common/metrics/metric_spec.h"
#include "services/loader/store/model_store.h"

namespace tandem::loader {

struct LoaderMetrics {
  static constexpr MetricSpec kWeightBytes{"tandem_loader_weight_bytes",
                                           MetricType::kGauge,
                                           "Packed weights in shared memory, bytes.",
                                           {"model"}};
  static constexpr MetricSpec kLeases{
      "tandem_loader_leases", MetricType::kGauge, "Leases that hold the model.", {"model"}};
  static constexpr MetricSpec kExchangeBytes{
      "tandem_loader_exchange_bytes", MetricType::kGauge,
      "Shared memory for activations between services, bytes."};
  static constexpr MetricSpec kRegions{"tandem_loader_regions", MetricType::kGauge,
                                       "Shared-memory objects open."};
  static std::vector<MetricSpec> All();
};

void AddLoaderMetrics(const StoreStatus& status, MetricSamples& samples);

}  // namespace tandem::loader
