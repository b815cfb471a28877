// POST /tokenize and /detokenize, as llama.cpp's server and vLLM have them, and the form of their
// errors.
#pragma once

#include "absl/status/status.h"
#include "services/gateway/http/http_router.h"
#include "services/gateway/service/launcher.h"

namespace tandem::gateway {

// /tokenize takes {"content" or "prompt": TEXT, "add_special": BOOL, "with_pieces": BOOL} and
// answers
// {"tokens": [ID, ...], "count", "max_model_len"}; with_pieces makes each token {"id", "piece"},
// the piece a text or, where it is not UTF-8, a list of bytes. add_special (false, but true with
// "prompt", as each of the two servers has it) puts the beginning-of-sequence token first.
// /detokenize takes {"tokens": [ID, ...]} and answers {"content": TEXT, "prompt": TEXT}.
// `launcher`: Borrowed; must outlive the server.
// Errors are as FormatLlamaCppFailure writes them.
absl::Status AddTokenRoutes(HttpRouter& router, const Launcher& launcher);

// {"error": {"code", "message", "type", "param"}}, as llama.cpp's server writes errors; "param" is
// OpenAI's.  An HttpErrorFormat.
HttpResponse FormatLlamaCppFailure(const HttpFailure& failure);

}  // namespace tandem::gateway
