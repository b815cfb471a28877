// The service around a worker; main.cc calls it with its Worker.
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
#include "services/common/worker/worker.h"
#include "services/worker_host/loader_weight_source.h"
#include "services/worker_host/worker_service.h"

namespace tandem {

struct RunWorkerOptions {
  ServerOptions server;
  OwnLoader own_loader;  // for gateways on other hosts
  WorkerServiceOptions service;
  std::string metrics;          // HOST:PORT of the page for Prometheus; empty: none
  bool metrics_remote = false;  // HOST need not be loopback
  // With a page: measure the device's ceilings for it (WorkerServiceOptions::measure_ceilings).
  bool measure_ceilings = true;
  MetricSource more_metrics;  // of this kind of device; may be empty
  // After a signal: the time for the running segment and other calls, and the time for everything.
  // After the second the process ends even if the device hangs.
  absl::Duration drain = absl::Seconds(5);
  absl::Duration exit_deadline = absl::Seconds(25);
};

// Serves until a signal comes, then drains.  The self-test runs on the device thread; after it,
// health is SERVING while the worker is usable.
// Returns errors of CheckTlsFiles, Server::Start and MetricsServer::Start only.  Errors of the
// device show in its health and in the log.
absl::Status RunWorkerService(std::unique_ptr<Worker> worker, const RunWorkerOptions& options,
                              ShutdownSignals& signals);

}  // namespace tandem
