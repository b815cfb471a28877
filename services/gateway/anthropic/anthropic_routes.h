// Anthropic's API: /v1/messages, /v1/messages/count_tokens.
#pragma once

#include "absl/status/status.h"
#include "services/gateway/api/answer_run.h"
#include "services/gateway/http/http_router.h"
#include "services/gateway/model/launcher.h"

namespace tandem::gateway {

// Adds the routes, and Anthropic's error format for them.  `launcher`: Borrowed; must outlive the
// server.
absl::Status AddAnthropicRoutes(HttpRouter& router, const Launcher& launcher,
                                const AnswerRunOptions& options = {});

}  // namespace tandem::gateway
