#include "services/loader/service/loader_metrics.h"

namespace tandem::loader {

std::vector<MetricSpec> LoaderMetrics::All() {
  return {kWeightBytes, kLeases, kExchangeBytes, kRegions};
}

void AddLoaderMetrics(const StoreStatus& status, MetricSamples& samples) {
  using M = LoaderMetrics;
  for (const StoreStatus::Model& model : status.models) {
    samples.Add(M::kWeightBytes, static_cast<double>(model.weight_bytes), {model.name});
    samples.Add(M::kLeases, model.num_leases, {model.name});
  }
  samples.Add(M::kExchangeBytes, static_cast<double>(status.exchange_bytes));
  samples.Add(M::kRegions, status.num_regions);
}

}  // namespace tandem::loader
