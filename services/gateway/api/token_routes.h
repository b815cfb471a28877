// POST /tokenize and /detokenize, as llama.cpp's server and vLLM have them.
#pragma once

#include "absl/status/status.h"
#include "services/gateway/http/http_router.h"
#include "services/gateway/service/launcher.h"

namespace tandem::gateway {

// /tokenize takes {"content" or "prompt": TEXT, "add_special": BOOL, "with_pieces": BOOL} and
// answers
// {"tokens": [ID, ...], "count", "max_model_len"}; with_pieces makes each token {"id", "piece"}.
// add_special (false, but true with "prompt", as each of the two servers has it) puts the
// beginning-of-sequence token first.
// /detokenize takes {"tokens": [ID, ...]} and answers {"content": TEXT, "prompt": TEXT}.
// `launcher`: Borrowed; must outlive the server.
absl::Status AddTokenRoutes(HttpRouter& router, const Launcher& launcher);

}  // namespace tandem::gateway
