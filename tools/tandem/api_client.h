// The commands' client of the public API.
#pragma once

#include <grpcpp/support/status.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tandem/v1/generation.grpc.pb.h"
#include "tools/tandem/gateway_address.h"

namespace tandem {

using GenerationStub = v1::Generation::Stub;

// A client of the gateway at `address`, by gRPC or by its HTTP port.  Does not connect yet.
std::shared_ptr<GenerationStub> MakeGenerationStub(const GatewayAddress& address);

// The same, after a check of the user that listens on a unix socket.  PERMISSION_DENIED: it is not
// this user, root, address.trusted_uid or the owner of a folder that root created (socket_trust.h).
absl::StatusOr<std::shared_ptr<GenerationStub>> OpenGateway(const GatewayAddress& address);

// The status of a call.  IsFromGateway: the gateway sent the error, or the connection to it ended;
// all other errors are this program's own.
absl::Status FromGateway(const grpc::Status& status);
bool IsFromGateway(const absl::Status& status);

// GetStatus within `timeout`; UNAVAILABLE without an answer.
absl::StatusOr<v1::GetStatusResponse> FetchStatus(GenerationStub& stub,
                                                  absl::Duration timeout = absl::Seconds(10));

// Polls until the gateway is ready.  DEADLINE_EXCEEDED with the last state seen, or
// FAILED_PRECONDITION with the reason when its state is "failed".
absl::StatusOr<v1::GetStatusResponse> WaitReady(GenerationStub& stub, absl::Duration timeout);

// The same, until each of its replicas is.
absl::StatusOr<v1::GetStatusResponse> WaitAllReady(GenerationStub& stub, absl::Duration timeout);

// Whether prompts are computed by other replicas than answers.
bool HasPhases(const v1::GetStatusResponse& status);

// "Out(3)+Ffn(3)+Qkv(4)" -> "Out+Ffn+Qkv": segments of different layers that do the same.
std::string StagesWithoutLayers(const std::string& stages);

// A message as JSON in the API's own field names, every field present; 64-bit integers are strings.
std::string MessageAsJson(const google::protobuf::Message& message);

}  // namespace tandem
