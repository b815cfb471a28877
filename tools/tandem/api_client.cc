#include "tools/tandem/api_client.h"

#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/cord.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/channel.h"
#include "services/common/rpc/socket_trust.h"
#include "services/common/rpc/status.h"
#include "tools/tandem/http_gateway.h"
#include "tools/tandem/printable.h"

namespace tandem {
namespace {

constexpr char kGatewayMark[] = "tandem/gateway";

}  // namespace

std::shared_ptr<GenerationStub> MakeGenerationStub(const GatewayAddress& address) {
  if (!address.is_http()) return v1::Generation::NewStub(CreateChannel(address.target));
  struct HttpClient {
    explicit HttpClient(const GatewayAddress& address)
        : gateway(address), stub(v1::Generation::NewStub(gateway.channel())) {}
    HttpGateway gateway;
    std::unique_ptr<GenerationStub> stub;
  };
  auto client = std::make_shared<HttpClient>(address);
  return {client, client->stub.get()};
}

absl::StatusOr<std::shared_ptr<GenerationStub>> OpenGateway(const GatewayAddress& address) {
  if (!address.is_http()) {
    const absl::Status trusted = CheckTargetPeer(address.target, address.trusted_uid);
    if (!trusted.ok()) {
      return absl::Status(
          trusted.code(),
          absl::StrFormat("%s; name another gateway by --address, or that user by --trust-uid UID "
                          "or TANDEM_TRUST_UID",
                          std::string(trusted.message())));
    }
  }
  return MakeGenerationStub(address);
}

absl::Status FromGateway(const grpc::Status& status) {
  absl::Status result = FromGrpcStatus({status.error_code(), OnOneLine(status.error_message())});
  if (!result.ok()) result.SetPayload(kGatewayMark, absl::Cord());
  return result;
}

bool IsFromGateway(const absl::Status& status) {
  return status.GetPayload(kGatewayMark).has_value();
}

namespace {

// `wait`: until there is a connection.  Only a call that waits drives one being made; calls that
// fail at once would leave it to gRPC's poll of every 5 s.
absl::StatusOr<v1::GetStatusResponse> FetchStatus(GenerationStub& stub, absl::Duration timeout,
                                                  bool wait) {
  grpc::ClientContext context;
  context.set_wait_for_ready(wait);
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(timeout));
  v1::GetStatusResponse response;
  const grpc::Status status = stub.GetStatus(&context, {}, &response);
  if (!status.ok()) return FromGateway(status);
  MakePrintable(response);
  return response;
}

}  // namespace

absl::StatusOr<v1::GetStatusResponse> FetchStatus(GenerationStub& stub, absl::Duration timeout) {
  return FetchStatus(stub, timeout, /*wait=*/false);
}

namespace {

// OK: `status` is of a gateway that is ready, and of each of its replicas if they `all` are to be.
// FAILED_PRECONDITION: one has failed.  UNAVAILABLE: not yet.
absl::Status CheckReady(const v1::GetStatusResponse& status, bool all) {
  if (status.state() == "failed") {
    return absl::FailedPreconditionError("the gateway failed: " + status.detail());
  }
  if (status.state() != "ready") {
    return absl::UnavailableError(absl::StrFormat("%s: %s", status.state(), status.detail()));
  }
  for (const v1::ReplicaStatus& replica : status.replicas()) {
    if (!all || replica.state() == "ready") continue;
    const std::string text =
        absl::StrFormat("replica %d, %s: %s", replica.replica(), replica.state(), replica.detail());
    return replica.state() == "failed" ? absl::FailedPreconditionError(text)
                                       : absl::UnavailableError(text);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::GetStatusResponse> WaitUntilReady(GenerationStub& stub, absl::Duration timeout,
                                                     bool all) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    auto status = FetchStatus(
        stub, std::clamp(deadline - absl::Now(), absl::Milliseconds(100), absl::Seconds(5)),
        /*wait=*/true);
    const absl::Status ready = status.ok() ? CheckReady(*status, all) : status.status();
    if (ready.ok()) return status;
    if (absl::IsFailedPrecondition(ready) && status.ok()) return ready;
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrFormat(
          "not ready after %s (%s)", absl::FormatDuration(timeout), std::string(ready.message())));
    }
    absl::SleepFor(absl::Milliseconds(100));
  }
}

}  // namespace

absl::StatusOr<v1::GetStatusResponse> WaitReady(GenerationStub& stub, absl::Duration timeout) {
  return WaitUntilReady(stub, timeout, false);
}

absl::StatusOr<v1::GetStatusResponse> WaitAllReady(GenerationStub& stub, absl::Duration timeout) {
  return WaitUntilReady(stub, timeout, true);
}

bool HasPhases(const v1::GetStatusResponse& status) {
  return std::ranges::any_of(status.replicas(), [](const v1::ReplicaStatus& replica) {
    return replica.role() == "prompts";
  });
}

std::string StagesWithoutLayers(const std::string& stages) {
  std::string result;
  bool inside = false;
  for (const char c : stages) {
    if (c == '(') inside = true;
    if (!inside) result.push_back(c);
    if (c == ')') inside = false;
  }
  return result;
}

std::string MessageAsJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) return "{}\n";
  return json;
}

}  // namespace tandem
