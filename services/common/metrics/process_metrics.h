// The metrics that every Prometheus client reports of its own process, and what it was built from.
#pragma once

#include <string>
#include <vector>

#include "services/common/metrics/metric_spec.h"

namespace tandem {

struct ProcessMetrics {
  static constexpr MetricSpec kBuild{"tandem_build_info",
                                     MetricType::kGauge,
                                     "1: what the process was built from.",
                                     {"version", "commit", "build_type", "compiler"}};
  static constexpr MetricSpec kCpuSeconds{"process_cpu_seconds_total", MetricType::kCounter,
                                          "Processor time of the process, seconds."};
  static constexpr MetricSpec kResidentBytes{"process_resident_memory_bytes", MetricType::kGauge,
                                             "Resident memory, bytes."};
  static constexpr MetricSpec kVirtualBytes{"process_virtual_memory_bytes", MetricType::kGauge,
                                            "Virtual memory, bytes."};
  static constexpr MetricSpec kStartTime{"process_start_time_seconds", MetricType::kGauge,
                                         "Start of the process, seconds since 1970."};
  static constexpr MetricSpec kOpenFds{"process_open_fds", MetricType::kGauge,
                                       "Open file descriptors."};
  static constexpr MetricSpec kMaxFds{"process_max_fds", MetricType::kGauge,
                                      "Limit of open file descriptors."};
  static constexpr MetricSpec kThreads{"process_threads", MetricType::kGauge, "Threads."};
  static std::vector<MetricSpec> All();
};

// What cannot be read is left out.
void AddProcessMetrics(MetricSamples& samples);

}  // namespace tandem
