// Routes of llama.cpp's server that OpenAI's API lacks: GET /props, /slots and /v1/health,
// POST /apply-template.  /tokenize and /detokenize are in api/token_routes.h.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "services/gateway/http/http_router.h"
#include "services/gateway/model/launcher.h"

namespace tandem::gateway {

// Adds the routes.  Errors are as FormatLlamaCppFailure writes them, those of /v1/health as OpenAI.
//
//   /props            the model, its context, its chat template and sampling defaults
//   /slots            one entry for each request that can run at a time: {"id", "is_processing",
//                     ...}, without the text of requests.  With ?fail_on_no_slot=1: 503 if all are
//                     taken
//   /apply-template   {"messages": [...]} to {"prompt": TEXT, "tokens": [ID, ...]}
//   /v1/health        {"status": "ok"}, or 503; without a key
//
// `version`: this server's.  `launcher`: Borrowed; must outlive the server.
absl::Status AddLlamaCppRoutes(HttpRouter& router, const Launcher& launcher,
                               const std::string& version);

}  // namespace tandem::gateway
