#include "services/gateway/api/api_error.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/str_format.h"

namespace tandem::gateway {
namespace {

constexpr char kParamUrl[] = "tandem/param";
constexpr char kCodeUrl[] = "tandem/code";

absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

std::optional<std::string> Payload(const absl::Status& status, const char* url) {
  const auto payload = status.GetPayload(url);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '[' ||
         c == ']';
}

// The first word of the engine's message about a prompt that is too long.
constexpr std::string_view kTooLong = "context_length_exceeded";
// The prefix of sampling parameters in errors about protobuf requests.
constexpr std::string_view kSampling = "sampling.";

}  // namespace

absl::Status ParamError(std::string_view param, std::string_view code, std::string_view message) {
  absl::Status status = absl::InvalidArgumentError(ToAbsl(message));
  status.SetPayload(kParamUrl, absl::Cord(ToAbsl(param)));
  status.SetPayload(kCodeUrl, absl::Cord(ToAbsl(code)));
  return status;
}

std::string ErrorParam(const absl::Status& status) {
  const auto param = Payload(status, kParamUrl);
  if (param.has_value()) return *param;
  if (!absl::IsInvalidArgument(status) && !absl::IsNotFound(status)) return "";
  const std::string message = ErrorMessage(status);
  const size_t colon = message.find(':');
  if (colon == std::string::npos) return "";
  const std::string name = message.substr(0, colon);
  const bool is_name = !name.empty() && std::all_of(name.begin(), name.end(), IsNameByte);
  return is_name && name != kTooLong ? name : "";
}

std::string ErrorCode(const absl::Status& status) {
  const auto code = Payload(status, kCodeUrl);
  if (code.has_value()) return *code;
  return std::string(status.message()).starts_with(kTooLong) ? std::string(kTooLong) : "";
}

std::string ErrorMessage(const absl::Status& status) {
  std::string message(status.message());
  if (message.starts_with(kSampling)) message.erase(0, kSampling.size());
  return message;
}

absl::Status AtPlace(const absl::Status& status, std::string_view array,
                     const std::vector<size_t>& places) {
  constexpr std::string_view kMessages = "messages[";
  const std::string param = ErrorParam(status);
  if (!absl::IsInvalidArgument(status) || !param.starts_with(kMessages)) return status;
  size_t message = 0;
  const char* begin = param.data() + kMessages.size();
  std::from_chars(begin, param.data() + param.size(), message);
  if (message >= places.size()) return status;
  const std::string place = absl::StrFormat("%s[%d]", std::string(array), places[message]);
  const std::string text(status.message());
  return ParamError(place, "invalid_value", place + text.substr(text.find(']') + 1));
}

}  // namespace tandem::gateway
