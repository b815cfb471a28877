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
#include "services/gateway/service/launcher.h"

namespace tandem::gateway {

// What is counted from the process' start, before there is a launcher.
struct GatewayMeters {
  GatewayCounters engine;
  HttpTraffic http;
  EdgeCounts grpc;
  // Shared with the HTTP server; null where everybody is served.  Set before there is a page.
  std::shared_ptr<ApiKeys> keys;
};

// Everything in GatewayMetrics and EdgeMetrics, KeyMetrics where there are keys, then what `more`
// adds.  `meters`, `launcher`: Borrowed; must outlive the result.
MetricSource GatewayPage(const GatewayMeters& meters, const Launcher& launcher, std::string version,
                         MetricSource more = {});

// GET /metrics, for this machine or holders of a key.  A key that is not an `admin` sees its own
// among the figures by key, and all others.
absl::Status AddMetricsRoute(HttpRouter& router, MetricSource page);

}  // namespace tandem::gateway
