// A worker's metrics.
#pragma once

#include <vector>

#include "services/common/metrics/metric_spec.h"
#include "services/common/worker/worker.h"
#include "tandem/worker/v1/worker.pb.h"

namespace tandem {

struct WorkerMetrics {
  static constexpr MetricSpec kInfo{"tandem_worker_info",
                                    MetricType::kGauge,
                                    "1: what this worker runs on.",
                                    {"worker", "kind", "device", "emulated"}};
  static constexpr MetricSpec kServing{"tandem_worker_serving",
                                       MetricType::kGauge,
                                       "1 while the device is usable, else 0.",
                                       {"worker"}};
  static constexpr MetricSpec kBusySeconds{
      "tandem_device_busy_seconds_total",
      MetricType::kCounter,
      "Time the device worked by its own timestamps, seconds, by kind of stage.",
      {"worker", "stage"}};
  static constexpr MetricSpec kBytes{
      "tandem_device_bytes_total",
      MetricType::kCounter,
      "Least bytes to read and write by the shapes of the segments run, by kind of stage: weights "
      "once a segment, KV cache, activations. The device may move more.",
      {"worker", "stage"}};
  static constexpr MetricSpec kOperations{"tandem_device_operations_total",
                                          MetricType::kCounter,
                                          "Least operations by the shapes of the segments run, by "
                                          "kind of stage; a multiply-add is two.",
                                          {"worker", "stage"}};
  static constexpr MetricSpec kReadCeiling{"tandem_device_read_ceiling_bytes_per_second",
                                           MetricType::kGauge,
                                           "Best read rate of the device over as much memory as a "
                                           "step reads, measured while it was idle.",
                                           {"worker"}};
  static constexpr MetricSpec kOperationsCeiling{
      "tandem_device_ceiling_operations_per_second",
      MetricType::kGauge,
      "Best compute rate of the device, measured while it was idle. fma: float32; matrix: float16 "
      "into float32 on matrix units, if it has any.",
      {"worker", "unit"}};
  static constexpr MetricSpec kErrors{
      "tandem_worker_errors_total",
      MetricType::kCounter,
      "Segments that failed and plans that were refused, by gRPC code.",
      {"worker", "code"}};
  static constexpr MetricSpec kSegments{"tandem_worker_segments_total",
                                        MetricType::kCounter,
                                        "Segments run, failed ones included.",
                                        {"worker"}};
  static constexpr MetricSpec kSegmentsFailed{"tandem_worker_segments_failed_total",
                                              MetricType::kCounter,
                                              "Segments that failed.",
                                              {"worker"}};
  static constexpr MetricSpec kRows{"tandem_worker_rows_total",
                                    MetricType::kCounter,
                                    "Rows in segments run: a token in a segment is one.",
                                    {"worker"}};
  static constexpr MetricSpec kPlanEpoch{"tandem_worker_plan_epoch",
                                         MetricType::kGauge,
                                         "Epoch of a loaded plan.",
                                         {"worker", "plan"}};
  static constexpr MetricSpec kWeightBytes{
      "tandem_worker_weight_bytes",
      MetricType::kGauge,
      "Weights that the device can read, bytes, by plan and how they were imported.",
      {"worker", "plan", "import"}};
  static constexpr MetricSpec kKvBytes{"tandem_worker_kv_bytes",
                                       MetricType::kGauge,
                                       "KV cache of a plan, bytes, used or not.",
                                       {"worker", "plan"}};
  static constexpr MetricSpec kLoadSeconds{"tandem_worker_load_seconds",
                                           MetricType::kGauge,
                                           "How long loading a plan took, seconds.",
                                           {"worker", "plan"}};
  static std::vector<MetricSpec> All();
};

void AddWorkerMetrics(const WorkerDescription& worker, bool serving,
                      const worker::v1::GetStatusResponse& status, MetricSamples& samples);

}  // namespace tandem
