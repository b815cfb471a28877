// Ollama's API: /api/chat, /api/generate, /api/embed, /api/embeddings, /api/tags, /api/show,
// /api/ps, /api/version.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "services/gateway/api/answer_run.h"
#include "services/gateway/http/http_router.h"
#include "services/gateway/service/launcher.h"

namespace tandem::gateway {

// What /api/version says: clients ask for a version of Ollama's before they use what it has, VS
// Code's Copilot for 0.6.4.  This one is the first with all that is served here: log-probabilities
// (0.12.11) and /v1/responses (0.13.3).
inline constexpr char kOllamaVersion[] = "0.13.3";

// Adds the routes, and Ollama's form, {"error": TEXT}, for the errors of all paths below /api/.
// What pulls and deletes models is in services/gateway/pull/; what pushes, copies or creates them
// is not there: 404. `version`: this server's own, beside Ollama's in /api/version. `launcher`:
// Borrowed; must outlive the server.
absl::Status AddOllamaRoutes(HttpRouter& router, const Launcher& launcher,
                             const std::string& version, const AnswerRunOptions& options = {});

}  // namespace tandem::gateway
