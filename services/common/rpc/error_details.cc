#include "services/common/rpc/error_details.h"

#include <string>

#include "absl/strings/cord.h"
#include "google/rpc/error_details.pb.h"
#include "services/common/base/client_text.h"
#include "services/common/rpc/status.h"

namespace tandem {
namespace {

constexpr char kRetryInfoUrl[] = "type.googleapis.com/google.rpc.RetryInfo";

}  // namespace

absl::Status WithRetryAfter(absl::Status status, absl::Duration delay) {
  google::rpc::RetryInfo info;
  absl::Duration rest;
  info.mutable_retry_delay()->set_seconds(absl::IDivDuration(delay, absl::Seconds(1), &rest));
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  status.SetPayload(kRetryInfoUrl, absl::Cord(info.SerializeAsString()));
  return status;
}

std::optional<absl::Duration> RetryAfterOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryInfoUrl);
  google::rpc::RetryInfo info;
  if (!payload.has_value() || !info.ParseFromString(std::string(*payload))) return std::nullopt;
  return absl::Seconds(info.retry_delay().seconds()) +
         absl::Nanoseconds(info.retry_delay().nanos());
}

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  google::rpc::Status out;
  out.set_code(static_cast<int>(status.code()));
  out.set_message(std::string(status.message()));
  status.ForEachPayload([&out](absl::string_view url, const absl::Cord& payload) {
    google::protobuf::Any& detail = *out.add_details();
    detail.set_type_url(std::string(url));
    detail.set_value(std::string(payload));
  });
  return out;
}

grpc::Status ToDetailedGrpcStatus(const absl::Status& status) {
  google::rpc::Status details = ToRpcStatus(status);
  // It goes into a header: a longer one would end the connection, and all calls on it.
  details.set_message(FitMessage(details.message()));
  if (details.details().empty()) {
    if (status.ok()) return grpc::Status::OK;
    return grpc::Status(static_cast<grpc::StatusCode>(status.code()), details.message());
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), details.message(),
                      details.SerializeAsString());
}

absl::Status FromDetailedGrpcStatus(const grpc::Status& status) {
  absl::Status out = FromGrpcStatus(status);
  google::rpc::Status details;
  if (out.ok() || status.error_details().empty() ||
      !details.ParseFromString(status.error_details())) {
    return out;
  }
  for (const google::protobuf::Any& detail : details.details()) {
    out.SetPayload(detail.type_url(), absl::Cord(detail.value()));
  }
  return out;
}

}  // namespace tandem
