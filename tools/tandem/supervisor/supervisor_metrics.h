// What the supervisor tells Prometheus.
#pragma once

#include <vector>

#include "services/common/metrics/metric_spec.h"
#include "tools/tandem/supervisor/supervisor.h"

namespace tandem {

struct SupervisorMetrics {
  static constexpr MetricSpec kRestarts{"tandem_service_restarts_total",
                                        MetricType::kCounter,
                                        "Times that a service ended and was started again.",
                                        {"service"}};
  static std::vector<MetricSpec> All() { return {kRestarts}; }
};

// Thread-safe, as Restarts is.
inline void AddSupervisorMetrics(const Supervisor& supervisor, MetricSamples& samples) {
  for (const auto& [service, restarts] : supervisor.Restarts()) {
    samples.Add(SupervisorMetrics::kRestarts, restarts, {service});
  }
}

}  // namespace tandem
