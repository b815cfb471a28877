// POST /tokenize and /detokenize, as in llama.cpp's server and vLLM, and their error format.
#pragma once

#include "absl/status/status.h"
#include "services/gateway/http/http_router.h"
#include "services/gateway/model/launcher.h"

namespace tandem::gateway {

//   /tokenize    {"content" or "prompt": TEXT, "add_special": BOOL, "with_pieces": BOOL}
//                -> {"tokens": [ID, ...], "count", "max_model_len"}
//   /detokenize  {"tokens": [ID, ...]} -> {"content": TEXT, "prompt": TEXT}
//
// with_pieces makes each token {"id", "piece"}; the piece is a text, or a list of bytes if it is
// not UTF-8.  add_special puts the beginning-of-sequence token first.  Its default is false with
// "content" (as in llama.cpp) and true with "prompt" (as in vLLM).  Errors have the form of
// FormatLlamaCppFailure.  `launcher`: Borrowed; must outlive the server.
absl::Status AddTokenRoutes(HttpRouter& router, const Launcher& launcher);

// {"error": {"code", "message", "type", "param"}}, as llama.cpp's server writes errors; "param" is
// OpenAI's.  An HttpErrorFormat.
HttpResponse FormatLlamaCppFailure(const HttpFailure& failure);

}  // namespace tandem::gateway
