#include "services/gateway/anthropic/anthropic_error.h"

#include <string>

#include "services/gateway/api/api_error.h"

namespace tandem::gateway {
namespace {

const char* ErrorTypeOf(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

Json AnthropicError(const absl::Status& status, int http_status) {
  std::string message = ErrorMessage(status);
  if (ErrorCode(status) == "context_length_exceeded") message = "prompt is too long: " + message;
  return {{"type", "error"},
          {"error", {{"type", ErrorTypeOf(http_status)}, {"message", std::move(message)}}}};
}

HttpResponse FormatAnthropicFailure(const HttpFailure& failure) {
  return {.status = failure.http_status,
          .body = DumpJson(AnthropicError(failure.status, failure.http_status))};
}

}  // namespace tandem::gateway
