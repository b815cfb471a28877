#include "services/gateway/rest/rest_input.h"

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// As in gRPC: up to eight digits and one of H, M, S, m, u, n.
absl::StatusOr<absl::Duration> ParseTimeout(const std::string& text) {
  uint64_t amount = 0;
  if (text.size() >= 2 && text.size() <= 9 &&
      text.find_first_not_of("0123456789") == text.size() - 1 &&
      absl::SimpleAtoi(text.substr(0, text.size() - 1), &amount)) {
    const int64_t n = static_cast<int64_t>(amount);
    switch (text.back()) {
      // clang-format off
      case 'H': return absl::Hours(n);
      case 'M': return absl::Minutes(n);
      case 'S': return absl::Seconds(n);
      case 'm': return absl::Milliseconds(n);
      case 'u': return absl::Microseconds(n);
      case 'n': return absl::Nanoseconds(n);
      default: break;
        // clang-format on
    }
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("Grpc-Timeout: '%s' is not like 10S or 500m", ClientText(text, 32)));
}

void FillRequestId(Message& message, const std::string& id) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName("request_id");
  if (field == nullptr || field->type() != FieldDescriptor::TYPE_STRING || field->is_repeated() ||
      !message.GetReflection()->GetString(message, field).empty()) {
    return;
  }
  message.GetReflection()->SetString(&message, field, id);
}

}  // namespace

absl::StatusOr<RestInput> ReadRestInput(const RestBinding& binding, const HttpRequest& request) {
  RestInput input;
  TANDEM_ASSIGN_OR_RETURN(input.message, BuildRequest(binding, request));
  FillRequestId(*input.message, request.id);
  if (const auto timeout = request.Header("grpc-timeout")) {
    TANDEM_ASSIGN_OR_RETURN(const absl::Duration limit, ParseTimeout(std::string(*timeout)));
    input.deadline = absl::Now() + limit;
  }
  return input;
}

}  // namespace tandem::gateway
