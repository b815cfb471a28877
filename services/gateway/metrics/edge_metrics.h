// What the gateway tells Prometheus of its gRPC connections.
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
      "gRPC connections that the gateway ended or refused. idle: without a request for long; "
      "evicted: made room for others; foreign: of another user, at the unix socket; the others "
      "went over a limit (docs/rest.md).",
      {"reason"}};
  static constexpr MetricSpec kReset{
      "tandem_grpc_requests_reset_total",
      MetricType::kCounter,
      "gRPC requests that the gateway reset. request_bytes: too long, or too much together; "
      "open_streams: too many together; slow: not complete in time.",
      {"reason"}};
  static std::vector<MetricSpec> All() { return {kConnections, kEnded, kReset}; }
};

void AddEdgeMetrics(const EdgeCounts& counts, MetricSamples& samples);

}  // namespace tandem::gateway
