// Ollama's API: /api/chat, /api/generate, /api/embed, /api/embeddings, /api/tags, /api/show,
// /api/ps, /api/version.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "services/gateway/api/answer_run.h"
#include "services/gateway/http/http_router.h"
#include "services/gateway/model/launcher.h"

namespace tandem::gateway {

// The version in /api/version.  Clients require a version of Ollama before they use its features;
// VS Code's Copilot requires 0.6.4.  This is the first version with all features served here:
// log-probabilities (0.12.11) and /v1/responses (0.13.3).
inline constexpr char kOllamaVersion[] = "0.13.3";

// Adds the routes.  Sets Ollama's error format, {"error": TEXT}, for all paths below /api/.  The
// routes that pull and delete models are in services/gateway/pull/; those that push, copy or create
// models are 404.  `version`: this server's, which /api/version reports beside Ollama's.
// `launcher`: Borrowed; must outlive the server.
absl::Status AddOllamaRoutes(HttpRouter& router, const Launcher& launcher,
                             const std::string& version, const AnswerRunOptions& options = {});

}  // namespace tandem::gateway
