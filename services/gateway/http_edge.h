// The public HTTP port: which APIs are on it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "services/common/rpc/server.h"
#include "services/gateway/http/http_server.h"
#include "services/gateway/service/gateway_flags.h"
#include "services/gateway/service/launcher.h"

namespace tandem::gateway {

// Serves health, the chat page, REST, OpenAI's and Ollama's APIs as `flags` say; null with
// --http=off.
// `launcher`, `grpc`: Borrowed; must outlive the result.
absl::StatusOr<std::unique_ptr<HttpServer>> StartHttpEdge(const HttpFlags& flags,
                                                          const Launcher& launcher, Server& grpc);

}  // namespace tandem::gateway
