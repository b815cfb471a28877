#include "services/gateway/gateway_flags.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/cache_folder.h"
#include "services/common/base/descriptors.h"
#include "services/common/base/status_macros.h"
#include "services/common/flags/flag_checks.h"
#include "services/common/picture/pan_and_scan.h"
#include "services/common/plan/drafters.h"
#include "services/common/plan/planner.h"
#include "services/common/rpc/server.h"
#include "services/common/rpc/tls_flags.h"
#include "services/common/rpc/worker_target.h"
#include "services/common/tensor/kv_format.h"
#include "services/gateway/http/api_keys.h"
#include "services/gateway/make_drafters.h"
#include "services/gateway/make_pictures.h"
#include "services/gateway/picture/fetch_rules.h"
#include "services/gateway/trace/http_poster.h"

namespace tandem::gateway {

namespace {

absl::Status CheckHttp(const std::string& listen) {
  return listen == kHttpOff ? absl::OkStatus() : CheckHttpAddress(listen);
}

// As browsers send it: no path, not even a slash.
absl::Status CheckOrigin(const std::string& origin) {
  const size_t host = origin.find("://");
  if (origin == "*" || (host != std::string::npos && host > 0 && host + 3 < origin.size() &&
                        origin.find('/', host + 3) == std::string::npos)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "'%s' is no origin: https://HOST[:PORT] without a path, or *, is expected", origin));
}

absl::Status CheckName(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  });
  if (plain && !name.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "'%s' is no host name: small letters, digits, '-' and '.' are expected", name));
}

absl::Status CheckOtlp(const std::string& url) {
  return url.empty() || url == kOtlpOff ? absl::OkStatus() : ParseCollectorUrl(url).status();
}

}  // namespace

void AddHttpFlags(CLI::App& app, HttpFlags& flags) {
  app.add_option("--http-pull", flags.pull_folder,
                 "Let clients pull models into this folder, or default for the user's "
                 "(docs/models.md); default: refused");
  app.add_option("--fetch-images", flags.fetch_images,
                 "HOST[,HOST...] that pictures of requests may be fetched from, by http or https: "
                 "NAME, *.NAME or an address, each with :PORT or for the scheme's port "
                 "(docs/pictures.md); default: none")
      ->delimiter(',')
      ->check(CheckedBy(ParseFetchHost));
  app.add_option("--http", flags.server.listen, "Where to serve HTTP: ADDRESS:PORT, or off")
      ->check(CheckedBy(CheckHttp))
      ->capture_default_str();
  app.add_flag("--http-open", flags.open,
               "Serve everybody who reaches --http, without API keys, beyond loopback");
  app.add_option("--http-tls-cert", flags.server.tls_certificate,
                 "PEM file: the certificate and those it is signed with; HTTPS alone then")
      ->check(CheckedBy(CheckReadable));
  app.add_option("--http-tls-key", flags.server.tls_key, "PEM file: the certificate's key")
      ->check(CheckedBy(CheckReadable));
  app.add_option(
         "--http-api-keys", flags.api_keys,
         "File of API keys, asked for on every route but health (docs/rest.md).  It and the "
         "two before are read again at SIGHUP")
      ->check(CheckedBy(ApiKeys::Load));
  app.add_option("--http-cors", flags.server.cors_origins,
                 "Origin whose pages may call, https://HOST[:PORT] or *; repeat for each")
      ->check(CheckedBy(CheckOrigin));
  app.add_option("--http-name", flags.server.names,
                 "Name, in small letters, that the server goes by on loopback; repeat for each")
      ->check(CheckedBy(CheckName));
  app.add_option("--http-threads", flags.server.num_threads, "Threads for connections")
      ->check(CLI::Range(1u, 16u))
      ->capture_default_str();
  flags.server.max_connections = 0;
  app.add_option("--http-connections", flags.server.max_connections,
                 "Connections at a time; 0: as many as the limit of open files has room for, at "
                 "most 4096")
      ->check(CLI::Range(0u, 1000000u))
      ->capture_default_str();
  flags.server.gets_per_second = 100;
  app.add_option("--http-gets", flags.server.gets_per_second,
                 "GETs a second of one key, or of one client without keys; 0: any number")
      ->check(CLI::Range(0u, 1000000u))
      ->capture_default_str();
  app.add_option("--http-body-bytes", flags.server.max_body_bytes, "Longest request body")
      ->check(CLI::Range(size_t{1024}, size_t{1} << 30))
      ->capture_default_str();
}

void AddTraceFlags(CLI::App& app, TraceFlags& flags) {
  app.add_option("--otlp", flags.otlp,
                 "Collector of traces, http(s)://HOST:4318/v1/traces, or off; default: "
                 "OTEL_EXPORTER_OTLP_ENDPOINT's, else none (docs/tracing.md)")
      ->check(CheckedBy(CheckOtlp));
  app.add_option("--trace-sample", flags.sample,
                 "Share of the requests exported whose clients do not say; default: all")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--trace-keep", flags.keep, "Requests whose traces are kept for `tandem trace`")
      ->check(CLI::Range(0u, 100000u))
      ->capture_default_str();
}

void AddHostFlags(CLI::App& app, GatewayFlags& flags) {
  app.add_option("--worker", flags.executor.worker_targets,
                 "A worker: unix:PATH, or tls://HOST:PORT on another host (docs/hosts.md); repeat "
                 "for each")
      ->check(CheckedBy(ParseWorkerTarget));
  app.add_option("--layers", flags.layers,
                 "WORKER=FIRST-LAST: layers of a GPU worker, by its name (tandem serve's own is "
                 "gpu0); repeat until every layer has one; default: by memory")
      ->check(CheckedBy(ParseLayerRange));
  AddTlsFlags(app, flags.executor.tls);
  app.add_flag("--allow-remote", flags.allow_clear,
               "Take tcp://HOST:PORT beyond loopback for a worker: neither encrypted nor "
               "authenticated");
}

void AddToolFlags(CLI::App& app, std::string& tool_format) {
  app.add_option(
         "--tool-format", tool_format,
         "How the model is shown tools and writes calls: gemma3 as JSON, functiongemma with "
         "control tokens, auto as its vocabulary has them")
      ->check(CLI::IsMember({"auto", "gemma3", "functiongemma"}))
      ->capture_default_str();
}

void AddNameFlags(CLI::App& app, ModelNameOptions& names) {
  app.add_option("--alias", names.aliases,
                 "Another name that clients may call the model by; repeat for each")
      ->check(CheckedBy(CheckAlias));
  app.add_flag("--any-model-name", names.any,
               "Take every name that clients give for the served model, instead of 404");
}

void AddQueueFlags(CLI::App& app, GatewayFlags& flags) {
  EngineOptions& engine = flags.engine;
  app.add_option(
         "--token-target-ms", flags.token_target_ms,
         "Milliseconds between two tokens of an answer that a step with prompt rows may take: "
         "prompts are cut to fit, by what steps took; 0: any")
      ->check(CLI::Range(0.0, 60000.0))
      ->capture_default_str();
  app.add_option("--queue", engine.max_waiting, "Requests waiting beyond those running")
      ->check(CLI::Range(0u, 1000000u))
      ->capture_default_str();
  app.add_option("--queue-tokens", engine.max_queued_tokens,
                 "Tokens of all prompts that wait or run; 0: any number")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 40))
      ->capture_default_str();
}

void AddGrpcFlags(CLI::App& app, GatewayFlags& flags) {
  app.add_option("--grpc-connections", flags.grpc_connections,
                 "gRPC connections at a time, three open files each; 0: as many as the limit of "
                 "open files has room for, at most 512")
      ->check(CLI::Range(0u, 100000u))
      ->capture_default_str();
}

void AddGatewayFlags(CLI::App& app, GatewayFlags& flags) {
  app.add_option("--listen", flags.server.listen, "Where to serve: unix:PATH or HOST:PORT");
  app.add_option("--port", flags.port,
                 "Also serve on 127.0.0.1:PORT; 0: on no port.  For any free port, which the log "
                 "names, give --listen 127.0.0.1:0")
      ->check(CLI::Range(0u, 65535u))
      ->capture_default_str();
  AddGrpcFlags(app, flags);
  AddHttpFlags(app, flags.http);
  CLI::Option* metrics =
      app.add_option("--metrics", flags.metrics,
                     "HOST:PORT of a page for Prometheus beside --http's /metrics; empty: none");
  app.add_flag("--metrics-remote", flags.metrics_remote, "HOST need not be loopback")
      ->needs(metrics);
  AddTraceFlags(app, flags.trace);
  app.add_option("--loader", flags.executor.loader_target, "The loader: unix:PATH or HOST:PORT")
      ->required();
  AddHostFlags(app, flags);
  app.add_option("--npu-worker", flags.executor.npu_targets,
                 "An NPU's worker on this machine: as --worker, and left out with --npu off")
      ->check(CheckedBy(ParseWorkerTarget));
  app.add_option("--model", flags.executor.model_name, "The model, as the loader lists it")
      ->required();
  AddNameFlags(app, flags.names);
  AddToolFlags(app, flags.tool_format);
  app.add_option("--npu", flags.npu, kNpuPolicyHelp)
      ->check(CheckedBy(ParseNpuPolicy))
      ->capture_default_str();
  app.add_option("--gpu", flags.gpu,
                 "require (a GPU), prefer (else a software driver, and the placement says so) or "
                 "software")
      ->type_name("TEXT:{require,prefer,software}")
      ->check(CheckedBy(ParseGpuPolicy))
      ->capture_default_str();
  AddPlacementFlags(app, flags);
  app.add_option("--gpus", flags.num_gpus,
                 "GPU workers that share the layers, in the order of --worker; 0: all there are; "
                 "default: 1, or all where a worker is on another host")
      ->check(CLI::Range(0, 1024));
  app.add_option("--replicas", flags.num_replicas,
                 "Serve the model so many times, side by side: each replica has as many of the "
                 "workers, in the order of --worker, and requests go where they end first "
                 "(docs/replicas.md)")
      ->check(CLI::Range(1u, 256u))
      ->capture_default_str();
  app.add_option(
         "--prompt-replicas", flags.num_prompt_replicas,
         "So many of the replicas, the first ones, compute prompts; the others decode, with "
         "the KV that they are handed")
      ->check(CLI::Range(0u, 255u))
      ->capture_default_str();
  app.add_flag("--npu-prompts", flags.npu_prompts, kNpuPromptsHelp);
  app.add_option(
         "--replica-file", flags.replica_file,
         "In place of --worker: a file with a line for each replica, its workers as "
         "--worker takes them, npu=TARGET for an NPU's, role=prompts or role=decode, kv=f16 or "
         "kv=q8_0.  Read "
         "again at SIGHUP: new lines "
         "join, lines that are gone leave when their requests have ended")
      ->check(CheckedBy(ReadReplicaFile));
  app.add_option(
         "--replica-names", flags.replica_names,
         "In place of --worker: a replica on each worker of these names that is there, "
         "tls://worker-{}.workers:7001 with 0, 1, 2... for {}.  Looked up every five seconds: "
         "new ones join, those that are gone leave")
      ->check(CheckedBy(CheckReplicaNames));
  app.add_flag("--out-on-npu", flags.executor.policy.out_on_npu,
               "Place output projections beside attention");
  app.add_option("--max-sequences", flags.engine.max_sequences, "Sequences running together")
      ->check(CLI::Range(1u, 4096u))
      ->capture_default_str();
  app.add_option("--max-rows", flags.engine.max_rows, "Rows in one step")
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str();
  app.add_option("--chunk-rows", flags.engine.chunk_rows,
                 "Rows of one prompt in one step; 0: as many as the step has")
      ->check(CLI::Range(0u, 65536u))
      ->capture_default_str();
  app.add_option("--prefix-cache", flags.prefix_cache,
                 "on: the KV of prompt prefixes is kept while there is room, for requests of the "
                 "same API key with the same prefix; shared: of all keys; or off")
      ->check(CLI::IsMember({"on", "shared", "off"}))
      ->capture_default_str();
  app.add_option("--speculate", flags.speculate, kSpeculateHelp)->check(CheckedBy(ParseDrafters));
  app.add_option("--image-decoder", flags.image_decoder,
                 "The program that decodes pictures of requests.  Default: tandem-image-decoder "
                 "beside this one, else in ../lib/tandem");
  app.add_flag("--pan-and-scan", flags.pan_and_scan, kPanAndScanHelp);
  app.add_option("--draft", flags.draft.model_name,
                 "The loader's name of a smaller model with the same vocabulary, which guesses");
  app.add_option("--draft-device", flags.draft.device, kDraftDeviceHelp)->capture_default_str();
  app.add_flag("!--no-queued-steps", flags.executor.queue_steps,
               "Hand a step to the worker only when the one before it is done");
  app.add_option("--kv-tokens", flags.executor.kv_tokens,
                 "Positions in the KV cache; 0: chosen by memory")
      ->capture_default_str();
  app.add_option("--kv-type", flags.kv_type,
                 "Numbers of the KV cache: f16, or q8_0 in 17/32 of the bytes")
      ->check(CLI::IsMember({"f16", "q8_0"}))
      ->capture_default_str();
  app.add_option("--context", flags.executor.context_len,
                 "Tokens of a prompt and its answer; 0: the model's")
      ->capture_default_str();
  app.add_option("--worker-wait", flags.worker_wait_seconds,
                 "Seconds to wait for a lost worker before its requests end; less than what "
                 "restarts it may take (tandem serve: 30 s and its start) ends them too soon")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  app.add_option("--segment-deadline", flags.segment_deadline_seconds,
                 "Seconds after which a worker that has not answered counts as lost; unless given, "
                 "900 for a GPU worker with a software driver")
      ->check(CLI::Range(0.1, 3600.0))
      ->default_str("30");
  AddQueueFlags(app, flags);
}

namespace {

// A step of a large model with a picture takes minutes on a processor.
constexpr absl::Duration kSoftwareSegmentDeadline = absl::Minutes(15);

// With --http off: a flag that was meant for something would do nothing.
absl::Status CheckNoHttpFlag(const HttpFlags& flags) {
  const HttpServerOptions& server = flags.server;
  const std::pair<const char*, bool> given[] = {
      {"--http-api-keys", !flags.api_keys.empty()},
      {"--http-tls-cert", !server.tls_certificate.empty()},
      {"--http-tls-key", !server.tls_key.empty()},
      {"--http-open", flags.open},
      {"--http-cors", !server.cors_origins.empty()},
      {"--http-name", !server.names.empty()},
      {"--http-pull", !flags.pull_folder.empty()},
      {"--fetch-images", !flags.fetch_images.empty()}};
  for (const auto& [name, is_given] : given) {
    if (!is_given) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s does nothing with --http off: leave it out, or give --http ADDRESS:PORT", name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckHttpFlags(const HttpFlags& flags) {
  const HttpServerOptions& server = flags.server;
  if (server.listen == kHttpOff) return CheckNoHttpFlag(flags);
  if (server.tls_certificate.empty() != server.tls_key.empty()) {
    return absl::InvalidArgumentError("--http-tls-cert and --http-tls-key go together: give both");
  }
  if (IsLoopback(server.listen) || !flags.api_keys.empty() || flags.open) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "--http %s is not loopback: everybody who reaches it could use the model; give "
      "--http-api-keys FILE, or --http-open where that is meant (a proxy or firewall in front)",
      server.listen));
}

namespace {

// Values of --favour.
std::map<std::string, Favour> Favours() {
  return {{"latency", Favour::kLatency},
          {"throughput", Favour::kThroughput},
          {"energy", Favour::kEnergy}};
}

}  // namespace

void AddPlacementFlags(CLI::App& app, GatewayFlags& flags) {
  app.add_option("--favour", flags.favour,
                 "With --npu auto: latency (of one stream), throughput (of all together) or energy "
                 "(of one stream, where the power of all devices can be read)")
      ->check(CLI::IsMember(Favours()))
      ->capture_default_str();
}

absl::Status FinishGatewayFlags(GatewayFlags& flags) {
  flags.executor.favour = Favours().at(flags.favour);
  const std::string cache = DefaultCacheFolder();
  if (!cache.empty()) flags.executor.costs_file = cache + "/placements.json";
  TANDEM_ASSIGN_OR_RETURN(flags.executor.policy.npu, ParseNpuPolicy(flags.npu));
  TANDEM_ASSIGN_OR_RETURN(flags.executor.policy.gpu, ParseGpuPolicy(flags.gpu));
  TANDEM_ASSIGN_OR_RETURN(flags.executor.policy.kv_dtype, ParseKvDType(flags.kv_type));
  if (flags.tool_format == "gemma3") flags.tools = ToolFormat::kGemma3;
  if (flags.tool_format == "functiongemma") flags.tools = ToolFormat::kFunctionGemma;
  TANDEM_RETURN_IF_ERROR(CheckHttpFlags(flags.http));
  TANDEM_ASSIGN_OR_RETURN(const uint64_t descriptors, RaiseDescriptorLimit());
  TANDEM_ASSIGN_OR_RETURN(flags.http.server.max_connections,
                          ConnectionsWithin(descriptors, flags.http.server.max_connections));
  EdgeOptions edge;
  TANDEM_ASSIGN_OR_RETURN(edge.max_connections,
                          GrpcConnectionsWithin(descriptors, flags.grpc_connections));
  H2Limits& limits = edge.limits;
  // One client may fill the queue.
  limits.max_streams =
      std::max(limits.max_streams, flags.engine.max_sequences + flags.engine.max_waiting + 32);
  limits.max_total_streams = std::max(limits.max_total_streams, 2 * limits.max_streams);
  limits.opening_burst = std::max(limits.opening_burst, 2.0 * limits.max_total_streams);
  // What HTTP takes passes through the same gRPC server.
  limits.max_request_bytes =
      std::max(limits.max_request_bytes, flags.http.server.max_body_bytes + kH2RequestReserve);
  limits.max_requests_bytes = std::max(limits.max_requests_bytes, 2 * limits.max_request_bytes);
  limits.max_total_bytes = std::max(limits.max_total_bytes, 2 * limits.max_requests_bytes);
  flags.server.edge = edge;
  TANDEM_RETURN_IF_ERROR(FinishWorkerFlags(flags));
  if (flags.port != 0) flags.server.listen.push_back(absl::StrFormat("127.0.0.1:%d", flags.port));
  if (flags.server.listen.empty()) {
    return absl::InvalidArgumentError(
        "there is nowhere to serve: give --listen unix:PATH, or --port N with N above 0");
  }
  flags.executor.worker_wait = absl::Seconds(flags.worker_wait_seconds);
  if (flags.segment_deadline_seconds.has_value()) {
    flags.executor.segment_deadline = absl::Seconds(*flags.segment_deadline_seconds);
  } else {
    flags.executor.software_segment_deadline = kSoftwareSegmentDeadline;
  }
  if (flags.engine.chunk_rows == 0) flags.engine.chunk_rows = flags.engine.max_rows;
  flags.engine.prefix_cache = flags.prefix_cache != "off";
  flags.engine.token_target = absl::Milliseconds(flags.token_target_ms);
  flags.engine.shared_prefixes = flags.prefix_cache == "shared";
  flags.executor.max_rows = flags.engine.max_rows;
  flags.executor.max_sequences = std::min(flags.engine.max_sequences, flags.engine.max_rows);
  flags.executor.plan_token = NewPlanToken();
  if (flags.image_decoder.empty()) flags.image_decoder = DefaultImageDecoder();
  return ChooseDrafters(flags.speculate, flags.draft.model_name).status();
}

}  // namespace tandem::gateway
