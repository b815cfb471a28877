// The gateway's page for Prometheus.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/common/metrics/metrics_server.h"
#include "services/common/rpc/edge/edge_counts.h"
#include "services/gateway/http/api_keys.h"
#include "services/gateway/http/http_router.h"
#include "services/gateway/http/http_traffic.h"
#include "services/gateway/metrics/gateway_counters.h"
#include "services/gateway/metrics/picture_metrics.h"
#include "services/gateway/model/launcher.h"

namespace tandem::gateway {

// Counters that exist from the process's start, before the launcher.
struct GatewayMeters {
  GatewayCounters engine;
  HttpTraffic http;
  EdgeCounts grpc;
  PictureCounters pictures;
  // Shared with the HTTP server; null if no key is needed.  Set before the page is made.
  std::shared_ptr<ApiKeys> keys;
};

// All of GatewayMetrics and EdgeMetrics, KeyMetrics if there are keys, PictureMetrics where pictures
// are accepted, then the samples that `more` adds.  `meters`, `launcher`: Borrowed; must outlive the result.
MetricSource GatewayPage(const GatewayMeters& meters, const Launcher& launcher, std::string version,
                         MetricSource more = {});

// Adds GET /metrics, for clients on this machine and for holders of a key.  A key without `admin`
// sees all metrics, but of those by key only its own.
absl::Status AddMetricsRoute(HttpRouter& router, MetricSource page);

}  // namespace tandem::gateway
