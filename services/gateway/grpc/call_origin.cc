#include "services/gateway/grpc/call_origin.h"

#include <chrono>
#include <memory>
#include <string>

#include "services/common/rpc/edge/peer_names.h"
#include "services/gateway/http/anonymous_client.h"
#include "services/gateway/http/peer_tenant.h"

namespace tandem::gateway {
namespace {

absl::Time Deadline(const grpc::CallbackServerContext& context) {
  const std::chrono::system_clock::time_point deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteFuture();
  return absl::FromChrono(deadline);
}

// All values of a key, joined by commas as in HTTP.
std::string MetadataOf(const grpc::CallbackServerContext& context, const char* key) {
  std::string all;
  const auto [begin, end] = context.client_metadata().equal_range(key);
  for (auto field = begin; field != end; ++field) {
    if (!all.empty()) all.push_back(',');
    all.append(field->second.data(), field->second.size());
  }
  return all;
}

}  // namespace

RpcCaller CallerOf(const grpc::CallbackServerContext& context, const TraceSampler& sampler) {
  return {
      .api = Api::kGrpc,
      .client = std::make_shared<AnonymousClient>(GrpcPeerTenant(PeerOfCall(context.peer()))),
      .trace = sampler.Begin(MetadataOf(context, kTraceParent), MetadataOf(context, kTraceState)),
      .deadline = Deadline(context)};
}

}  // namespace tandem::gateway
