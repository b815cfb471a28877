#include "services/gateway/http/http_message.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "services/common/base/client_text.h"
#include "services/common/rpc/error_details.h"

namespace tandem::gateway {
namespace {

// The length-preserving `absl::string_view` of a standard one.
absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Whether a field called `name` lists `wanted` outright, with a weight above 0.
bool Offers(const HttpHeaders& headers, std::string_view name, std::string_view wanted) {
  for (const auto& [key, value] : headers) {
    if (!absl::EqualsIgnoreCase(View(key), View(name))) continue;
    for (const absl::string_view range : absl::StrSplit(View(value), ',')) {
      const std::vector<absl::string_view> parts = absl::StrSplit(range, ';');
      if (!absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(parts[0]), View(wanted))) continue;
      double weight = 1.0;
      for (size_t i = 1; i < parts.size(); ++i) {
        absl::string_view parameter = absl::StripAsciiWhitespace(parts[i]);
        if (!absl::StartsWithIgnoreCase(parameter, "q=")) continue;
        if (!absl::SimpleAtod(parameter.substr(2), &weight)) weight = 0.0;
      }
      return weight > 0.0;
    }
  }
  return false;
}

}  // namespace

std::optional<std::string_view> HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (absl::EqualsIgnoreCase(View(key), View(name))) return value;
  }
  return std::nullopt;
}

std::string_view HttpRequest::Variable(std::string_view name) const {
  for (const auto& [key, value] : variables) {
    if (key == name) return value;
  }
  return {};
}

bool HttpRequest::Accepts(std::string_view media_type) const {
  return Offers(headers, "accept", media_type);
}

bool HttpRequest::AcceptsEncoding(std::string_view coding) const {
  return Offers(headers, "accept-encoding", coding);
}

int HttpStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

std::string_view HttpReason(int http_status) {
  switch (http_status) {
    // clang-format off
    case 100: return "Continue";
    case 200: return "OK";
    case 201: return "Created";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 499: return "Client Closed Request";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Unknown";
      // clang-format on
  }
}

HttpFailure FailureOf(const absl::Status& status) {
  HttpFailure failure{HttpStatusOf(status.code()), ForClients(status), std::nullopt};
  if (const auto delay = RetryAfterOf(status)) {
    const absl::Duration whole = std::max(absl::Ceil(*delay, absl::Seconds(1)), absl::Seconds(1));
    failure.retry_after_seconds = absl::ToInt64Seconds(whole);
  } else if (failure.http_status == 429 || failure.http_status == 503) {
    failure.retry_after_seconds = 1;
  }
  return failure;
}

HttpResponse StatusResponse(const HttpFailure& failure) {
  google::rpc::Status status = ToRpcStatus(failure.status);
  HttpResponse response;
  response.status = failure.http_status;
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  if (!google::protobuf::util::MessageToJsonString(status, &response.body, options).ok()) {
    status.clear_details();  // of types that are not known here
    response.body.clear();
    (void)google::protobuf::util::MessageToJsonString(status, &response.body, options);
  }
  return response;
}

}  // namespace tandem::gateway
