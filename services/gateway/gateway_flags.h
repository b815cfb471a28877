// Flags of tandem-gateway.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/common/rpc/server.h"
#include "services/gateway/draft/draft_options.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/http/http_server.h"
#include "services/gateway/model/model_names.h"
#include "services/gateway/replica_names.h"
#include "services/gateway/replica_workers.h"
#include "services/gateway/tool_calls/call_parser.h"
#include "services/gateway/trace/tracing.h"

namespace tandem::gateway {

// --http's value for none.
inline constexpr char kHttpOff[] = "off";

struct HttpFlags {
  HttpServerOptions server;
  std::string api_keys;  // a file; empty: everybody is served
  bool open = false;     // ... beyond loopback too
  // Where clients may pull models to, or "default"; empty: they may not.
  std::string pull_folder;
  std::vector<std::string> fetch_images;  // hosts, as ParseFetchHost takes them
};

struct GatewayFlags {
  ServerOptions server;
  uint32_t grpc_connections = 0;  // 0: as many as there is room for
  HttpFlags http;
  ExecutorOptions executor;              // of the model on all workers
  std::vector<ReplicaWorkers> replicas;  // from FinishGatewayFlags
  std::string replica_file;              // in place of the workers above, read again at SIGHUP
  std::string replica_names;             // ... likewise, as CheckReplicaNames takes it
  std::optional<ReplicaNames> found;     // ... by those names; from FinishGatewayFlags
  ModelNameOptions names;
  std::string tool_format = "auto";
  std::optional<ToolFormat> tools;        // unset: the vocabulary decides; from FinishGatewayFlags
  EngineOptions engine{.chunk_rows = 0};  // until FinishGatewayFlags
  std::string npu = "auto";
  std::string favour = "latency";
  std::string gpu = "prefer";
  std::string kv_type = "f16";
  std::string prefix_cache = "on";
  std::string image_decoder;  // a program; empty: the one beside the gateway
  bool pan_and_scan = false;
  std::string speculate;  // empty: as ChooseDrafters says
  DraftModelPlace draft;  // its name is empty without --draft
  double token_target_ms = 0.0;
  std::vector<std::string> layers;  // until FinishGatewayFlags, as is the following
  int num_gpus = -1;
  uint32_t num_replicas = 1;
  uint32_t num_prompt_replicas = 0;  // the first of them: they compute prompts alone
  bool npu_prompts = false;          // one replica more, on the NPU, computes prompts
  bool auto_prompts = false;         // ... if measured to be better; from FinishGatewayFlags
  bool allow_clear = false;          // workers on other hosts without TLS
  uint32_t port = 0;
  std::string metrics;          // HOST:PORT of a page for Prometheus; empty: --http's alone
  bool metrics_remote = false;  // HOST need not be loopback
  TraceFlags trace;
  double worker_wait_seconds = absl::ToDoubleSeconds(kWorkerWait);
  std::optional<double> segment_deadline_seconds;  // null: ExecutorOptions'

  // Whether replicas may come and go.
  bool replicas_change() const { return !replica_file.empty() || !replica_names.empty(); }
};

// `flags`: Borrowed; must outlive parsing.
void AddGatewayFlags(CLI::App& app, GatewayFlags& flags);
// Some of them alone, for commands that pass them on: HTTP, gRPC, tracing, workers on other hosts.
void AddHttpFlags(CLI::App& app, HttpFlags& flags);
void AddGrpcFlags(CLI::App& app, GatewayFlags& flags);
void AddTraceFlags(CLI::App& app, TraceFlags& flags);
void AddHostFlags(CLI::App& app, GatewayFlags& flags);
// Those of what clients may call the model, likewise.
void AddNameFlags(CLI::App& app, ModelNameOptions& names);
// How the model is shown tools, likewise.
void AddToolFlags(CLI::App& app, std::string& tool_format);
// How placements are weighed, likewise.
void AddPlacementFlags(CLI::App& app, GatewayFlags& flags);
// How much may wait, and how long a token may take, likewise.
void AddQueueFlags(CLI::App& app, GatewayFlags& flags);
// What no flag of HTTP says alone.  INVALID_ARGUMENT: half of a certificate and its key, an address
// beyond loopback with neither API keys nor --http-open, or one of them with --http off.
absl::Status CheckHttpFlags(const HttpFlags& flags);
// Whether the gateway may speak to these workers.  INVALID_ARGUMENT names the one that it may not.
absl::Status CheckWorkers(const GatewayFlags& flags, const ReplicaWorkers& workers);
// After parsing.  INVALID_ARGUMENT names the flag.
// A part of FinishGatewayFlags: workers and replicas, and which layers go where.
absl::Status FinishWorkerFlags(GatewayFlags& flags);
absl::Status FinishGatewayFlags(GatewayFlags& flags);

}  // namespace tandem::gateway
