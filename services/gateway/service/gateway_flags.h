// Flags of tandem-gateway.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "services/common/rpc/server.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/executor/executor.h"

namespace tandem::gateway {

struct GatewayFlags {
  ServerOptions server;
  ExecutorOptions executor;
  EngineOptions engine;
  std::string npu = "prefer";
  uint32_t port = 0;
  double worker_wait_seconds = 30.0;
  double segment_deadline_seconds = 30.0;
};

// `flags`: Borrowed; must outlive parsing.
void AddGatewayFlags(CLI::App& app, GatewayFlags& flags);
// After parsing.  INVALID_ARGUMENT names the flag.
absl::Status FinishGatewayFlags(GatewayFlags& flags);

}  // namespace tandem::gateway
