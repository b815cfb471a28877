// The public API as the commands use it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tandem/v1/generation.grpc.pb.h"

namespace tandem {

using GenerationStub = v1::Generation::Stub;

// A client of the gateway at `target` ("unix:/run/...", "127.0.0.1:50051").  Does not connect yet.
std::unique_ptr<GenerationStub> MakeGenerationStub(const std::string& target);

// GetStatus within `timeout`; UNAVAILABLE when nobody answers.
absl::StatusOr<v1::GetStatusResponse> FetchStatus(GenerationStub& stub, absl::Duration timeout);

// Polls until the gateway is ready.  DEADLINE_EXCEEDED with the last state seen, or
// FAILED_PRECONDITION with the reason when its state is "failed".
absl::StatusOr<v1::GetStatusResponse> WaitReady(GenerationStub& stub, absl::Duration timeout);

// "Out(3)+Ffn(3)+Qkv(4)" -> "Out+Ffn+Qkv": segments of different layers that do the same.
std::string StagesWithoutLayers(const std::string& stages);

// A message as JSON in the API's own field names, every field present; 64-bit integers are strings.
std::string MessageAsJson(const google::protobuf::Message& message);

}  // namespace tandem
