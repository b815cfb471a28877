// tandem-gpu-worker: runs stages of models on a Vulkan device for a gateway.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "services/common/base/cache_folder.h"
#include "services/common/base/exit_codes.h"
#include "services/common/base/log_flags.h"
#include "services/common/base/logging.h"
#include "services/common/energy/device_energy.h"
#include "services/common/flags/parse_flags.h"
#include "services/common/flags/service_flags.h"
#include "services/common/metrics/amdgpu_metrics.h"
#include "services/common/metrics/gpu_metrics.h"
#include "services/common/rpc/library_logs.h"
#include "services/common/rpc/polling.h"
#include "services/common/rpc/shutdown_signals.h"
#include "services/gpu_worker/stages/gpu_worker.h"
#include "services/gpu_worker/vulkan/instance.h"
#include "services/gpu_worker/worker_flags.h"
#include "services/worker_host/worker_flags.h"

namespace {

struct Flags {
  std::string listen = "unix:/run/tandem/gpu.sock";
  bool probe = false;
  bool list = false;
  tandem::RunWorkerOptions run;
  tandem::gpu::GpuWorkerOptions worker;
};

int Fail(const Flags& flags, const absl::Status& status, int exit_code) {
  if (flags.probe) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return exit_code;
  }
  tandem::LogError("no GPU worker", {{"reason", std::string(status.message())}});
  return exit_code;
}

// A line for each device that may be used under the policy: its index, a tab, its name.
int List(const Flags& flags) {
  const auto instance = tandem::vulkan::Instance::Create({});
  if (!instance.ok()) {
    std::fprintf(stderr, "%s\n", std::string(instance.status().message()).c_str());
    return tandem::DeviceExitCode(instance.status());
  }
  const bool software = flags.worker.gpu == tandem::GpuPolicy::kSoftware;
  const auto& devices = (*instance)->devices();
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i].missing.empty() || devices[i].software() != software) continue;
    std::printf("%zu\t%s\n", i, devices[i].name.c_str());
  }
  return tandem::kExitSuccess;
}

int Serve(Flags& flags) {
  // First: the driver's threads inherit its mask.
  tandem::PollForLatency();
  tandem::ShutdownSignals signals;
  auto worker = tandem::gpu::GpuWorker::Create(flags.worker);
  if (!worker.ok()) return Fail(flags, worker.status(), tandem::DeviceExitCode(worker.status()));
  if (flags.probe) {
    if (const absl::Status health = (*worker)->CheckHealth(); !health.ok()) {
      return Fail(flags, health, tandem::kExitFailure);
    }
    std::printf("%s%s\n", (*worker)->DescribeDevice().c_str(),
                (*worker)->description().device.c_str());
    return 0;
  }
  tandem::LogInfo("device", {{"description", (*worker)->DescribeDevice()}});
  flags.run.server.listen = {flags.listen};
  // A device that is the processor has no sensor of its own.
  std::unique_ptr<tandem::DeviceEnergy> energy;
  if ((*worker)->device().info().software()) {
    flags.run.service.stuck_after = tandem::gpu::kSoftwareStepTimeout;
  } else {
    energy = tandem::DeviceEnergy::OfThisMachinesGpu();
  }
  if (energy != nullptr) {
    tandem::LogInfo("power is measured", {{"sensor", energy->name()}});
    flags.run.service.power = [&energy] { return energy->watts(); };
  }
  const bool shares_memory = (*worker)->device().info().unified_memory();
  flags.run.more_metrics = [&flags, &energy, shares_memory](tandem::MetricSamples& samples) {
    samples.Add(tandem::GpuMetrics::kSharesMemory, shares_memory ? 1 : 0, {flags.worker.name});
    tandem::AddAmdgpuMetrics("/", samples);
    if (energy != nullptr) energy->AddTo(flags.worker.name, samples);
  };
  const absl::Status served = tandem::RunWorkerService(*std::move(worker), flags.run, signals);
  return served.ok() ? tandem::kExitSuccess : Fail(flags, served, tandem::ServeExitCode(served));
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  flags.worker.cache_folder = tandem::DefaultCacheFolder();
  CLI::App app("Runs stages of models on a Vulkan device for a Tandem gateway.");
  app.add_option("--listen", flags.listen, "unix:PATH or HOST:PORT")->capture_default_str();
  app.add_option("--name", flags.worker.name, "Name in the cluster")->capture_default_str();
  app.add_option("--device", flags.worker.device,
                 "Index or part of the name of the Vulkan device; empty: the best there is");
  tandem::gpu::AddGpuFlag(app, flags.worker);
  app.add_option("--max-rows", flags.worker.max_rows, "Rows in a step")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  app.add_option("--cache", flags.worker.cache_folder,
                 "Folder for compiled pipelines and tables of tuning")
      ->capture_default_str();
  tandem::gpu::AddTuneFlags(app, flags.worker);
  tandem::gpu::AddPollFlag(app, flags.worker);
  tandem::gpu::AddSubmissionFlag(app, flags.worker);
  app.add_flag("!--no-import", flags.worker.import_memory,
               "Upload weights and copy activations rather than import the regions");
  app.add_flag("--validation", flags.worker.validation, "Vulkan's validation layer, if installed");
  tandem::AddLogFlags(app);
  tandem::AddHostFlags(app, flags.run);
  CLI::Option* metrics = app.add_option("--metrics", flags.run.metrics,
                                        "HOST:PORT of the page for Prometheus; empty: none");
  app.add_flag("--metrics-remote", flags.run.metrics_remote, "HOST need not be loopback")
      ->needs(metrics);
  app.add_flag("!--no-ceilings", flags.run.measure_ceilings,
               "With --metrics: do not measure what the device does at best, which takes it half a "
               "second, once, when it is first idle with a plan")
      ->needs(metrics);
  app.add_flag("--probe", flags.probe, "Try the device, print what it is, and end");
  app.add_flag("--list", flags.list,
               "Print index and name of each device that --gpu allows, GPUs alone with prefer, and "
               "end");
  tandem::AddServiceFlags(app, "tandem-gpu-worker");
  if (const auto ended = tandem::ParseFlags(app, argc, argv)) return *ended;
  tandem::InitLogging("gpu_worker");
  tandem::RouteLibraryLogs();
  return flags.list ? List(flags) : Serve(flags);
}
