// Errors as Anthropic's clients expect them.
#pragma once

#include "absl/status/status.h"
#include "services/gateway/api/json.h"
#include "services/gateway/http/http_message.h"

namespace tandem::gateway {

// {"type": "error", "error": {"type", "message"}}.  A prompt that is too long begins with the words
// that clients look for.
Json AnthropicError(const absl::Status& status, int http_status);

// The response to a request that failed before its first byte.  An HttpErrorFormat.
HttpResponse FormatAnthropicFailure(const HttpFailure& failure);

}  // namespace tandem::gateway
