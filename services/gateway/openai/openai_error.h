// Errors as OpenAI's clients expect them.
#pragma once

#include "absl/status/status.h"
#include "services/gateway/api/json.h"
#include "services/gateway/http/http_message.h"

namespace tandem::gateway {

// {"error": {"message", "type", "param", "code"}}; param and code are null if unknown.
Json OpenAiError(const absl::Status& status, int http_status);

// The response to a request that failed before its first byte.  An HttpErrorFormat.
HttpResponse FormatOpenAiFailure(const HttpFailure& failure);

}  // namespace tandem::gateway
