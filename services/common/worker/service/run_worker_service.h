// What a worker's main.cc calls once it has a Worker.
//
//   int main(int argc, char** argv) {
//     PollForLatency();
//     ShutdownSignals signals;  // first: the driver's threads inherit its mask
//     InitLogging("gpu_worker");
//     ... flags ...
//     absl::StatusOr<std::unique_ptr<Worker>> worker = VulkanWorker::Create(options);
//     if (!worker.ok()) { LogError(...); return 1; }
//     absl::Status status = RunWorkerService(*std::move(worker), {.server = {.listen = {listen}}},
//                                            signals);
//   }
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/common/metrics/metrics_server.h"
#include "services/common/rpc/server.h"
#include "services/common/rpc/shutdown_signals.h"
#include "services/common/worker/service/loader_weight_source.h"
#include "services/common/worker/service/worker_service.h"
#include "services/common/worker/worker.h"

namespace tandem {

struct RunWorkerOptions {
  ServerOptions server;
  OwnLoader own_loader;  // for gateways on other hosts
  WorkerServiceOptions service;
  std::string metrics;          // HOST:PORT of the page for Prometheus; empty: none
  bool metrics_remote = false;  // HOST need not be loopback
  // With a page: measure the device's ceilings for it (WorkerServiceOptions::measure_ceilings).
  bool measure_ceilings = true;
  MetricSource more_metrics;  // of the device's kind; may be empty
  // After a signal: for the segment under way and for other calls, and in all; a device that
  // hangs longer does not keep the process from ending.
  absl::Duration drain = absl::Seconds(5);
  absl::Duration exit_deadline = absl::Seconds(25);
};

// Serves until a signal comes, then drains.  The worker is self-tested on its device thread;
// health says SERVING from then on, and only while it is usable.
// Errors of CheckTlsFiles, Server::Start and MetricsServer::Start alone; what the device does is
// health's and the log's matter.
absl::Status RunWorkerService(std::unique_ptr<Worker> worker, const RunWorkerOptions& options,
                              ShutdownSignals& signals);

}  // namespace tandem
