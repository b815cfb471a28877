#include "services/gateway/metrics/edge_metrics.h"

namespace tandem::gateway {

void AddEdgeMetrics(const EdgeCounts& counts, MetricSamples& samples) {
  const auto read = [](const std::atomic<uint64_t>& count) {
    return static_cast<double>(count.load(std::memory_order_relaxed));
  };
  samples.Add(EdgeMetrics::kConnections, read(counts.connections));
  for (int i = 1; i < kNumH2Faults; ++i) {
    samples.Add(EdgeMetrics::kEnded, read(counts.ended[i]), {H2FaultName(static_cast<H2Fault>(i))});
  }
  samples.Add(EdgeMetrics::kEnded, read(counts.evicted), {"evicted"});
  samples.Add(EdgeMetrics::kEnded, read(counts.foreign), {"foreign"});
  for (const H2Fault fault : {H2Fault::kRequestBytes, H2Fault::kStreams, H2Fault::kSlow}) {
    samples.Add(EdgeMetrics::kReset, read(counts.resets[static_cast<size_t>(fault)]),
                {H2FaultName(fault)});
  }
}

}  // namespace tandem::gateway
