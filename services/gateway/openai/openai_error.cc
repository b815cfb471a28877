#include "services/gateway/openai/openai_error.h"

#include <string>

#include "services/gateway/api/api_error.h"

namespace tandem::gateway {
namespace {

const char* TypeOf(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string CodeOf(const absl::Status& status, int http_status, const std::string& param) {
  std::string code = ErrorCode(status);
  if (!code.empty()) return code;
  if (http_status == 404 && param == "model") return "model_not_found";
  if (http_status == 401) return "invalid_api_key";
  if (http_status == 429) return "rate_limit_exceeded";
  return param.empty() ? "" : "invalid_value";
}

Json NullIfEmpty(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

Json OpenAiError(const absl::Status& status, int http_status) {
  const std::string param = ErrorParam(status);
  const std::string code = CodeOf(status, http_status, param);
  return {{"error",
           {{"message", ErrorMessage(status)},
            {"type", TypeOf(http_status)},
            {"param", NullIfEmpty(param)},
            {"code", NullIfEmpty(code)}}}};
}

HttpResponse FormatOpenAiFailure(const HttpFailure& failure) {
  return {.status = failure.http_status,
          .body = DumpJson(OpenAiError(failure.status, failure.http_status))};
}

}  // namespace tandem::gateway
