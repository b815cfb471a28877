#include "services/gateway/api/api_error.h"

#include <algorithm>
#include <optional>

#include "absl/strings/cord.h"

namespace tandem::gateway {
namespace {

constexpr char kParamUrl[] = "tandem/param";
constexpr char kCodeUrl[] = "tandem/code";

absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

std::string Payload(const absl::Status& status, const char* url) {
  const auto payload = status.GetPayload(url);
  return payload.has_value() ? std::string(*payload) : "";
}

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '[' ||
         c == ']';
}

}  // namespace

absl::Status ParamError(std::string_view param, std::string_view code, std::string_view message) {
  absl::Status status = absl::InvalidArgumentError(ToAbsl(message));
  status.SetPayload(kParamUrl, absl::Cord(ToAbsl(param)));
  status.SetPayload(kCodeUrl, absl::Cord(ToAbsl(code)));
  return status;
}

std::string ErrorParam(const absl::Status& status) {
  std::string param = Payload(status, kParamUrl);
  if (!param.empty()) return param;
  if (!absl::IsInvalidArgument(status) && !absl::IsNotFound(status)) return "";
  const std::string message(status.message());
  const size_t colon = message.find(':');
  if (colon == std::string::npos) return "";
  std::string name = message.substr(0, std::min(colon, message.find(' ')));
  constexpr std::string_view kSampling = "sampling.";
  if (name.starts_with(kSampling)) name.erase(0, kSampling.size());
  const bool is_name = !name.empty() && std::all_of(name.begin(), name.end(), IsNameByte);
  return is_name ? name : "";
}

std::string ErrorCode(const absl::Status& status) { return Payload(status, kCodeUrl); }

}  // namespace tandem::gateway
