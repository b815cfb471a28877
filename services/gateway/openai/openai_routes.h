// OpenAI's API: /v1/models, /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings.
#pragma once

#include "absl/status/status.h"
#include "services/gateway/api/answer_run.h"
#include "services/gateway/http/http_router.h"
#include "services/gateway/model/launcher.h"

namespace tandem::gateway {

// Adds the routes.  Sets OpenAI's error format for all paths below /v1/.
// `launcher`: Borrowed; must outlive the server.
absl::Status AddOpenAiRoutes(HttpRouter& router, const Launcher& launcher,
                             const AnswerRunOptions& options = {});

}  // namespace tandem::gateway
