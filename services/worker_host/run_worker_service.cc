#include "services/worker_host/run_worker_service.h"

#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/systemd/heartbeat.h"
#include "services/common/systemd/progress_watch.h"
#include "services/worker_host/worker_metrics.h"

namespace tandem {
namespace {

constexpr absl::Duration kStuckCheckInterval = absl::Seconds(1);
// Longest silence of the device thread while it compiles, measures or uploads.
constexpr absl::Duration kTaskPatience = absl::Minutes(10);

// A worker's reports to the service manager.
Pulse PulseOf(const WorkerService& service, const WorkerServiceOptions& options, bool usable,
              ProgressWatch& watch) {
  const absl::Duration patience =
      service.at_task() ? kTaskPatience : options.stuck_after + 2 * options.idle_check_interval;
  const bool stuck = service.IsStuck();
  Pulse pulse{.serving = usable && !stuck, .starting = !service.self_tested()};
  pulse.alive = watch.Moves(service.turns(), absl::Now(), patience) && !stuck;
  if (!pulse.alive) {
    pulse.status = "the device hangs";
  } else if (pulse.starting) {
    pulse.status = "testing the device";
  } else if (!usable) {
    pulse.status = "the device is not usable; the log says why";
  } else {
    std::string models;
    const worker::v1::GetStatusResponse status = service.Status();
    for (const worker::v1::PlanStatus& plan : status.plans()) {
      models += (models.empty() ? "serving model " : " and ") + plan.model_id();
    }
    pulse.status = models.empty() ? "waiting for a plan" : models;
  }
  return pulse;
}

// Ends the process if its owner does not finish in time.
class ExitDeadline {
 public:
  explicit ExitDeadline(absl::Duration limit)
      : thread_([this, limit] {
          if (done_.WaitForNotificationWithTimeout(limit)) return;
          LogError("the device does not let go, ending anyway");
          ::_exit(1);
        }) {}
  ~ExitDeadline() {
    done_.Notify();
    thread_.join();
  }

 private:
  absl::Notification done_;
  std::thread thread_;
};

}  // namespace

absl::Status RunWorkerService(std::unique_ptr<Worker> worker, const RunWorkerOptions& options,
                              ShutdownSignals& signals) {
  const WorkerDescription description = worker->description();
  LogInfo("worker", {{"name", description.name}, {"device", description.device}});
  TANDEM_RETURN_IF_ERROR(CheckTlsFiles(options.server.tls));
  LoaderWeightSource source(options.own_loader);
  ServerOptions listening = options.server;
  if (!options.own_loader.target.empty()) listening.max_message_bytes = kMaxInlineMessageBytes;
  WorkerServiceOptions service_options = options.service;
  service_options.measure_ceilings |= options.measure_ceilings && !options.metrics.empty();
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<WorkerService> service,
      WorkerService::Create(std::move(worker), source, listening, service_options));
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<Server> server,
      Server::Start(listening, {{worker::v1::Worker::service_full_name(), service.get()}}));
  std::atomic<bool> usable{false};
  const auto show = [&] { server->SetServing(usable && !service->IsStuck()); };
  service->Start([&](bool serving) {
    usable = serving;
    show();
  });
  const auto page = [&](MetricSamples& samples) {
    AddWorkerMetrics(description, usable && !service->IsStuck(), service->Status(), samples);
    if (options.more_metrics) options.more_metrics(samples);
  };
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<MetricsServer> metrics,
                          MetricsServer::StartIf(options.metrics, options.metrics_remote, page));
  const ServiceManager manager = ServiceManager::FromEnvironment();
  ProgressWatch watch;
  Heartbeat heartbeat(manager, [&] { return PulseOf(*service, options.service, usable, watch); });
  while (!signals.WaitFor(kStuckCheckInterval)) show();
  heartbeat.End("draining");
  const ExitDeadline exit_deadline(options.exit_deadline);
  server->SetServing(false);
  metrics.reset();
  service->Drain();
  server->Shutdown(options.drain);
  service.reset();  // joins the device thread before the server it reports to goes
  return absl::OkStatus();
}

}  // namespace tandem
