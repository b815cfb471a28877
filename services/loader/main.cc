// tandem-loader: reads model files, packs weights into shared memory, and hands them out.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "services/common/base/cache_folder.h"
#include "services/common/base/exit_codes.h"
#include "services/common/base/log_flags.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/flags/parse_flags.h"
#include "services/common/flags/service_flags.h"
#include "services/common/metrics/metrics_server.h"
#include "services/common/rpc/library_logs.h"
#include "services/common/rpc/region_channel.h"
#include "services/common/rpc/server.h"
#include "services/loader/service/loader_metrics.h"
#include "services/loader/service/loader_pulse.h"
#include "services/loader/service/loader_service.h"

namespace tandem::loader {
namespace {

struct Flags {
  std::string listen;
  ModelStore::Options store;
  std::vector<std::string> mmproj;  // NAME=FILE
  bool no_packed_cache = false;
  std::string metrics;
  bool metrics_remote = false;
};

absl::Status Serve(const Flags& flags, ShutdownSignals& signals) {
  RegionServer::Options region_options;
  TANDEM_ASSIGN_OR_RETURN(region_options.socket_path, RegionSocketPath(flags.listen));
  // First: a manager's descriptors have numbers of their own.
  std::vector<InheritedDescriptor> inherited = TakeInheritedDescriptors();
  const ServiceManager manager = ServiceManager::FromEnvironment();
  std::shared_ptr<KeptWeights> kept;
  if (manager.present()) kept = std::make_shared<KeptWeights>(manager, std::move(inherited));
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<ModelStore> store,
                          ModelStore::Create(flags.store, std::move(kept)));
  // Before gRPC answers, so that every client with a lease finds the descriptor socket.
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<RegionServer> regions,
      RegionServer::Start(region_options, [&store](const RegionRequest& request) {
        return store->leases().GetRegion(request);
      }));
  LoaderService service(store.get());
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<Server> server,
      Server::Start({.listen = {flags.listen}}, {{v1::Loader::service_full_name(), &service}}));
  const auto page = [&store](MetricSamples& samples) {
    AddLoaderMetrics(store->GetStatus(), samples);
  };
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<MetricsServer> metrics,
                          MetricsServer::StartIf(flags.metrics, flags.metrics_remote, page));
  server->SetServing(true);
  TANDEM_ASSIGN_OR_RETURN(LoaderPulse pulse, LoaderPulse::Create(flags.listen));
  Heartbeat heartbeat(manager, [&pulse] { return pulse.Take(); });
  signals.Wait();
  heartbeat.End("ending");
  server->SetServing(false);
  metrics.reset();
  service.Drain();
  server->Shutdown(absl::Seconds(2));
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem::loader

int main(int argc, char** argv) {
  tandem::ShutdownSignals signals;
  tandem::InitLogging("loader");
  tandem::RouteLibraryLogs();
  tandem::loader::Flags flags;
  CLI::App app("Reads model files and shares packed weights with workers.", "tandem-loader");
  app.add_option("--listen", flags.listen,
                 "unix:PATH to serve on; descriptors are passed on PATH.fds")
      ->required();
  app.add_option("--root", flags.store.roots, "directory that holds models; may be repeated")
      ->required();
  app.add_option("--mmproj", flags.mmproj,
                 "NAME=FILE: the vision encoder of the model NAME; NAME=none: it has none; may be "
                 "repeated.  Default: the one beside the model")
      ->type_name("NAME=FILE")
      ->check([](const std::string& text) {
        return std::string(text.find('=') == std::string::npos ? "must be NAME=FILE" : "");
      })
      ->allow_extra_args(false);
  app.add_option("--max-region-bytes", flags.store.packing.max_region_bytes,
                 "largest shared-memory object, bytes")
      ->capture_default_str();
  app.add_option("--threads", flags.store.packing.num_threads, "packing threads, 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  const std::string caches = tandem::DefaultCacheFolder();
  if (!caches.empty()) flags.store.packed_cache.folder = caches + "/packed";
  app.add_option("--packed-cache", flags.store.packed_cache.folder,
                 "folder for packed weights, so that the next start need not pack")
      ->capture_default_str();
  app.add_option("--packed-cache-bytes", flags.store.packed_cache.max_bytes,
                 "size of that folder; what was not used for longest goes first")
      ->capture_default_str();
  app.add_flag("--no-packed-cache", flags.no_packed_cache, "keep no packed weights on disk");
  tandem::AddLogFlags(app);
  CLI::Option* metrics = app.add_option("--metrics", flags.metrics,
                                        "HOST:PORT of the page for Prometheus; empty: none");
  app.add_flag("--metrics-remote", flags.metrics_remote, "HOST need not be loopback")
      ->needs(metrics);
  tandem::AddServiceFlags(app, "tandem-loader");
  if (const auto ended = tandem::ParseFlags(app, argc, argv)) return *ended;
  if (flags.no_packed_cache) flags.store.packed_cache.folder.clear();
  for (const std::string& mmproj : flags.mmproj) {
    const size_t equals = mmproj.find('=');
    const std::string file = mmproj.substr(equals + 1);
    flags.store.vision[mmproj.substr(0, equals)] = file == "none" ? "" : file;
  }
  const absl::Status status = tandem::loader::Serve(flags, signals);
  if (status.ok()) return 0;
  tandem::LogError("loader stopped", {{"reason", std::string(status.message())}});
  return tandem::ServeExitCode(status);
}
