// tandem-gateway: the public API over one model and its workers.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/common/base/exit_codes.h"
#include "services/common/base/heap_trimmer.h"
#include "services/common/base/log_flags.h"
#include "services/common/base/logging.h"
#include "services/common/flags/parse_flags.h"
#include "services/common/flags/service_flags.h"
#include "services/common/rpc/library_logs.h"
#include "services/common/rpc/polling.h"
#include "services/common/rpc/server.h"
#include "services/common/rpc/shutdown_signals.h"
#include "services/common/version/version.h"
#include "services/gateway/engine/request_log.h"
#include "services/gateway/gateway_flags.h"
#include "services/gateway/grpc/generation_service.h"
#include "services/gateway/http_edge.h"
#include "services/gateway/make_pictures.h"
#include "services/gateway/make_replicas.h"
#include "services/gateway/metrics/metrics_page.h"
#include "services/gateway/model/gateway_pulse.h"
#include "services/gateway/model/launcher.h"
#include "services/gateway/trace/tracing.h"

namespace tandem::gateway {
namespace {

constexpr absl::Duration kDrainPatience = absl::Seconds(30);
constexpr absl::Duration kNamesPause = absl::Seconds(5);  // between two looks for --replica-names

int Fail(const char* event, const absl::Status& status) {
  LogError(event, {{"reason", std::string(status.message())}});
  return ServeExitCode(status);
}

// As much as HTTP takes.
int MaxRequestBytes(const HttpFlags& flags) {
  const size_t http = flags.server.listen == kHttpOff ? 0 : flags.server.max_body_bytes;
  return static_cast<int>(std::clamp<size_t>(http, 16 << 20, kMaxMessageBytes));
}

PictureEncoderOptions PictureOptions(const GatewayFlags& flags, GatewayMeters& meters) {
  PictureEncoderOptions options;
  options.decoder.program = flags.image_decoder;
  options.pan_and_scan = flags.pan_and_scan;
  options.fetcher.hosts = flags.http.fetch_images;
  if (const char* file = std::getenv("SSL_CERT_FILE")) options.fetcher.limits.ca_file = file;
  options.on_stage = [&meters](PictureStage stage, absl::Duration time) {
    meters.pictures.AddStage(stage, time);
  };
  options.on_picture = [&meters](PictureOutcome outcome) { meters.pictures.Add(outcome); };
  return options;
}

// Those that the flags have now, or their file.  After an error they stay as they are.
void ReloadReplicas(const GatewayFlags& flags, Launcher& launcher) {
  auto replicas = MakeReplicas(flags);
  if (!replicas.ok()) {
    return LogError("the replicas stay as they are",
                    {{"reason", std::string(replicas.status().message())}});
  }
  launcher.SetReplicas(std::move(replicas->all));
}

int Serve(const GatewayFlags& flags, ShutdownSignals& signals) {
  GatewayMeters meters;
  if (flags.http.server.listen != kHttpOff && !flags.http.api_keys.empty()) {
    auto keys = ApiKeys::Load(flags.http.api_keys);
    if (!keys.ok()) return Fail("cannot read the API keys", keys.status());
    meters.keys = *std::move(keys);
  }
  const HeapTrimmer trimmer;
  RequestLog log;
  const auto tracing = Tracing::Create(flags.trace, flags.executor.model_name, Version());
  if (!tracing.ok()) return Fail("cannot trace", tracing.status());
  EngineOptions engine = flags.engine;
  const bool has_page = flags.http.server.listen != kHttpOff || !flags.metrics.empty();
  if (has_page) engine.observers.push_back(&meters.engine);
  engine.observers.push_back(&log);
  if ((*tracing)->enabled()) engine.observers.push_back(&(*tracing)->tracer());
  Launcher* launched = nullptr;
  auto replicas = MakeReplicas(flags, [&launched](std::optional<ReplicaStart> extra) {
    launched->SetExtra(std::move(extra));
  });
  if (!replicas.ok()) return Fail("cannot place the replicas", replicas.status());
  Launcher launcher(*std::move(replicas), engine, flags.names, flags.tools,
                    PicturesBy(PictureOptions(flags, meters), flags.executor));
  launched = &launcher;
  GenerationService service(
      launcher,
      {.version = Version(), .sampler = (*tracing)->sampler(), .traces = &(*tracing)->ring()});
  ServerOptions options = flags.server;
  options.edge->counts = &meters.grpc;
  // Requests, not responses: protobuf takes many times a message's bytes for one made of tiny parts.
  options.configure = [&flags](grpc::ServerBuilder& builder) {
    builder.SetMaxReceiveMessageSize(MaxRequestBytes(flags.http));
  };
  auto server = Server::Start(options, {{v1::Generation::service_full_name(), &service}});
  if (!server.ok()) return Fail("cannot serve", server.status());
  const MetricSource page =
      GatewayPage(meters, launcher, Version(),
                  [&tracing](MetricSamples& samples) { (*tracing)->AddTo(samples); });
  auto metrics = MetricsServer::StartIf(flags.metrics, flags.metrics_remote, page);
  if (!metrics.ok()) return Fail("cannot serve metrics", metrics.status());
  const auto http =
      StartHttpEdge(flags.http, launcher, service.methods(), page, meters, (*tracing)->sampler());
  if (!http.ok()) return Fail("cannot serve HTTP", http.status());
  const ServiceManager manager = ServiceManager::FromEnvironment();
  GatewayPulse pulse(launcher, flags.executor);
  Heartbeat heartbeat(manager, [&pulse] { return pulse.Take(absl::Now()); });
  // Without a worker's name there is nothing to wait for yet.
  bool begun = !flags.found.has_value() || flags.found->found();
  const auto begin = [&] {
    launcher.Begin([&server](bool ready) { (*server)->SetServing(ready); });
  };
  if (begun) begin();
  std::optional<ReplicaNamesWatch> names;
  if (flags.found.has_value()) {
    if (!begun) LogInfo("waiting for a worker", {{"names", flags.replica_names}});
    names.emplace(*flags.found, kNamesPause, [&, now = flags](auto found) mutable {
      now.replicas = std::move(found);
      ReloadReplicas(now, launcher);
      if (!std::exchange(begun, true)) begin();
    });
  }
  signals.OnReload([&flags, &http, &launcher] {
    if (*http != nullptr) (*http)->Reload();
    if (!flags.replica_file.empty()) ReloadReplicas(flags, launcher);
  });
  signals.Wait();
  signals.OnReload(nullptr);
  names.reset();
  heartbeat.End("draining");
  LogInfo("draining", {{"patience", absl::FormatDuration(kDrainPatience)}});
  (*server)->SetServing(false);
  if (*http != nullptr) (*http)->BeginDrain();
  launcher.Drain(kDrainPatience);
  launcher.EndRequests();
  if (*http != nullptr) (*http)->Shutdown(absl::Seconds(2));
  (*server)->Shutdown(absl::Seconds(2));
  (*tracing)->Flush();
  if (launcher.waiting_for_services()) std::_Exit(0);  // not there, and no longer needed
  return 0;
}

}  // namespace
}  // namespace tandem::gateway

int main(int argc, char** argv) {
  tandem::PollForLatency();
  tandem::ShutdownSignals signals;
  tandem::InitLogging("gateway");
  tandem::RouteLibraryLogs();
  CLI::App app("Tandem gateway: serves one model over its workers", "tandem-gateway");
  tandem::gateway::GatewayFlags flags;
  tandem::gateway::AddGatewayFlags(app, flags);
  tandem::AddLogFlags(app);
  tandem::AddServiceFlags(app, "tandem-gateway");
  if (const auto ended = tandem::ParseFlags(app, argc, argv)) return *ended;
  const absl::Status status = tandem::gateway::FinishGatewayFlags(flags);
  if (!status.ok()) {
    std::fprintf(stderr, "tandem-gateway: %s\n", std::string(status.message()).c_str());
    return tandem::kExitUsage;
  }
  return tandem::gateway::Serve(flags, signals);
}
