// Ollama's API: /api/chat, /api/generate, /api/embed, /api/embeddings, /api/tags, /api/show,
// /api/ps, /api/version.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "services/gateway/api/answer_run.h"
#include "services/gateway/http/http_router.h"
#include "services/gateway/service/launcher.h"

namespace tandem::gateway {

// Adds the routes, and Ollama's form, {"error": TEXT}, for the errors of all paths below /api/.
// What pulls, pushes, copies or deletes models is not there: 404.
// `launcher`: Borrowed; must outlive the server.
absl::Status AddOllamaRoutes(HttpRouter& router, const Launcher& launcher,
                             const std::string& version, const AnswerRunOptions& options = {});

}  // namespace tandem::gateway
