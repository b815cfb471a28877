// What a GPU worker tells Prometheus of its device beside what all workers tell.
#pragma once

#include <vector>

#include "services/common/metrics/metric_spec.h"

namespace tandem {

struct GpuMetrics {
  static constexpr MetricSpec kSharesMemory{
      "tandem_gpu_shares_memory",
      MetricType::kGauge,
      "1: the GPU uses the host's memory; 0: it has its own memory, so weights are uploaded.",
      {"worker"}};
  static std::vector<MetricSpec> All() { return {kSharesMemory}; }
};

}  // namespace tandem
