// tandem-npu-worker: runs attention on an NPU (or on the emulated one) for a gateway.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/common/base/log_flags.h"
#include "services/common/base/logging.h"
#include "services/common/energy/device_energy.h"
#include "services/common/flags/flag_checks.h"
#include "services/common/flags/parse_flags.h"
#include "services/common/flags/service_flags.h"
#include "services/common/rpc/library_logs.h"
#include "services/common/rpc/polling.h"
#include "services/common/rpc/shutdown_signals.h"
#include "services/common/rpc/worker_absence.h"
#include "services/common/systemd/service_manager.h"
#include "services/npu_worker/npu_worker.h"
#include "services/npu_worker/startup.h"
#include "services/npu_worker/xrt/npu_sensors.h"
#include "services/worker_host/worker_flags.h"

namespace tandem::npu {
namespace {

struct Flags {
  std::string listen = "unix:/run/tandem/npu.sock";
  std::string policy = "prefer";
  bool probe = false;
  StartupOptions startup;
  RunWorkerOptions run;
};

// Under "auto", "prefer" and "off" tells the gateway not to wait for this worker.
void TellGateway(const Flags& flags, const WorkerAbsence& absence) {
  const absl::Status written = WriteAbsence(flags.listen, absence);
  if (written.ok()) return;
  LogWarning("the gateway will take this worker for lost",
             {{"reason", std::string(written.message())}});
}

int Fail(const Flags& flags, const absl::Status& status) {
  const NpuPolicy policy = flags.startup.policy;
  const ExitCode code = ExitCodeFor(policy, status);
  const std::string reason = ReasonOf(status);
  if (flags.probe) {
    std::fprintf(stderr, "%s\n", reason.c_str());
    return code;
  }
  LogLevel level = LogLevel::kError;
  if (NpuIsOptional(policy) || policy == NpuPolicy::kOff) {
    const WorkerAbsence absence = AbsenceOf(flags.startup, status);
    if (code == kExitNothingToDo) {
      level = absence.device_present ? LogLevel::kWarning : LogLevel::kInfo;
    }
    TellGateway(flags, absence);
  }
  Log(level, code == kExitWrongAnswers ? "the NPU gives wrong answers" : "no NPU worker",
      {{"policy", std::string(NpuPolicyName(policy))},
       {"exit_code", static_cast<int>(code)},
       {"reason", reason}});
  // An NPU that is not there is no failure of the unit under "prefer".
  const ServiceManager manager = ServiceManager::FromEnvironment();
  if (code == kExitNothingToDo) manager.Ready();
  manager.Status(reason.empty() ? "no NPU" : reason);
  return code;
}

// Ends the service when a later self-test gets wrong answers: another try could let some of them through.
class WrongAnswers {
 public:
  WrongAnswers(const Flags& flags, ShutdownSignals& signals) : flags_(flags), signals_(signals) {}

  // On the device's thread.
  void Seen(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return;
    status_ = status;
    // Before the socket goes, so that the gateway does not wait for this worker.
    if (NpuIsOptional(flags_.startup.policy)) {
      TellGateway(flags_, AbsenceOf(flags_.startup, status));
    }
    signals_.Request();
  }
  absl::Status status() const {
    absl::MutexLock lock(&mutex_);
    return status_;
  }

 private:
  const Flags& flags_;
  ShutdownSignals& signals_;
  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_) = absl::OkStatus();
};

// The NPU's power, as answers report it (DeviceHost::Power); empty: it cannot be read.
DeviceHost::Power MeasurePower(uint32_t device_index) {
  auto read = OpenNpuPower(device_index);
  if (!read.ok()) {
    LogInfo("power is not measured", {{"reason", std::string(read.status().message())}});
    return {};
  }
  // The copies of the function share it.
  const std::shared_ptr<DeviceEnergy> energy =
      DeviceEnergy::WhileInUse("amdxdna", *std::move(read));
  LogInfo("power is measured", {{"sensor", energy->name()}});
  return [energy] { return energy->watts(); };
}

int Serve(Flags& flags) {
  // A worker that comes to harm from here on is lost, not absent.
  if (!flags.probe) RemoveAbsence(flags.listen);
  if (const absl::Status status = PrepareNpu(flags.startup); !status.ok()) {
    return Fail(flags, status);
  }
  PollForLatency();
  ShutdownSignals signals;  // starts a thread: XRT's environment is set by now
  WrongAnswers wrong(flags, signals);
  flags.startup.worker.on_wrong_answers = [&](const absl::Status& status) { wrong.Seen(status); };
  auto worker = NpuWorker::Create(flags.startup.worker);
  if (!worker.ok()) return Fail(flags, worker.status());
  if (flags.probe) {
    std::printf("%s\n", (*worker)->description().device.c_str());
    return kExitSuccess;
  }
  flags.run.server.listen = {flags.listen};
  flags.run.service.power = MeasurePower(flags.startup.worker.device_index);
  std::unique_ptr<NpuSensors> sensors;
  if (!flags.run.metrics.empty()) sensors = NpuSensors::Open(flags.startup.worker.device_index);
  flags.run.more_metrics = [&](MetricSamples& samples) {
    if (sensors != nullptr) sensors->AddTo(flags.startup.worker.name, samples);
  };
  const absl::Status served = RunWorkerService(*std::move(worker), flags.run, signals);
  if (!wrong.status().ok()) return Fail(flags, wrong.status());
  if (served.ok()) return kExitSuccess;
  LogError("cannot serve", {{"reason", std::string(served.message())}});
  return ServeExitCode(served);
}

}  // namespace
}  // namespace tandem::npu

int main(int argc, char** argv) {
  tandem::npu::Flags flags;
  CLI::App app("Runs attention on an NPU for a Tandem gateway.");
  app.add_option("--listen", flags.listen, "unix:PATH or HOST:PORT")->capture_default_str();
  app.add_option("--name", flags.startup.worker.name, "Name in the cluster")->capture_default_str();
  app.add_option("--npu", flags.policy, tandem::kNpuPolicyHelp)
      ->check(tandem::CheckedBy(tandem::ParseNpuPolicy))
      ->capture_default_str();
  app.add_option("--kernels", flags.startup.worker.kernel_folder,
                 "Folder of the package of operators");
  app.add_option("--emulated-xrt", flags.startup.emulated_xrt, "XRT root of the emulated NPU");
  app.add_option("--max-rows", flags.startup.worker.max_rows, "Rows in a step")
      ->check(CLI::Range(1, 65536));
  app.add_option("--device", flags.startup.worker.device_index, "XRT's index of the NPU");
  tandem::AddLogFlags(app);
  tandem::AddHostFlags(app, flags.run);
  CLI::Option* metrics = app.add_option("--metrics", flags.run.metrics,
                                        "HOST:PORT of the page for Prometheus; empty: none");
  app.add_flag("--metrics-remote", flags.run.metrics_remote, "HOST need not be loopback")
      ->needs(metrics);
  app.add_flag("--probe", flags.probe, "Test the NPU, print what it is, and end");
  tandem::AddServiceFlags(app, "tandem-npu-worker");
  if (const auto ended = tandem::ParseFlags(app, argc, argv)) return *ended;
  tandem::InitLogging("npu_worker");
  tandem::RouteLibraryLogs();
  const auto policy = tandem::ParseNpuPolicy(flags.policy);
  if (!policy.ok()) {
    tandem::LogError("bad flag", {{"reason", std::string(policy.status().message())}});
    return tandem::kExitUsage;
  }
  flags.startup.policy = *policy;
  return tandem::npu::Serve(flags);
}
