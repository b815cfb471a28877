// Metrics of the gateway's gRPC connections.
#pragma once

#include <vector>

#include "services/common/metrics/metric_spec.h"
#include "services/common/rpc/edge/edge_counts.h"

namespace tandem::gateway {

struct EdgeMetrics {
  static constexpr MetricSpec kConnections{"tandem_grpc_connections", MetricType::kGauge,
                                           "gRPC connections open."};
  static constexpr MetricSpec kEnded{
      "tandem_grpc_connections_ended_total",
      MetricType::kCounter,
      "gRPC connections that the gateway ended or refused. idle: no request for long; evicted: "
      "made room for others; foreign: another user at the unix socket; all others: over a limit "
      "(docs/rest.md).",
      {"reason"}};
  static constexpr MetricSpec kReset{
      "tandem_grpc_requests_reset_total",
      MetricType::kCounter,
      "gRPC requests that the gateway reset. request_bytes: too long, alone or together; "
      "open_streams: too many at once; slow: not complete in time.",
      {"reason"}};
  static std::vector<MetricSpec> All() { return {kConnections, kEnded, kReset}; }
};

void AddEdgeMetrics(const EdgeCounts& counts, MetricSamples& samples);

}  // namespace tandem::gateway
