#include "services/gateway/service/call_origin.h"

#include <openssl/crypto.h>
#include <sys/random.h>

#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/rpc/edge/peer_names.h"
#include "services/gateway/http/peer_tenant.h"

namespace tandem::gateway {
namespace {

// Random, made once: no other process can know it.
const std::string& EdgeSecret() {
  static const std::string secret = [] {
    std::array<char, 16> bytes;
    TANDEM_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    return absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
  }();
  return secret;
}

bool FromHttpEdge(const grpc::CallbackServerContext& context) {
  const std::string shown = MetadataOf(context, kEdgeMetadata);
  const std::string& secret = EdgeSecret();
  return shown.size() == secret.size() &&
         ::CRYPTO_memcmp(shown.data(), secret.data(), secret.size()) == 0;
}

}  // namespace

std::string MetadataOf(const grpc::CallbackServerContext& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end()) return "";
  return std::string(found->second.data(), found->second.size());
}

void AddTenant(const HttpClient& client, grpc::ClientContext& context) {
  context.AddMetadata(kEdgeMetadata, EdgeSecret());
  context.AddMetadata(kTenantMetadata, client.tenant());
  context.AddMetadata(kWeightMetadata, absl::StrFormat("%d", client.weight()));
  if (!client.sees_all()) context.AddMetadata(kOwnTracesMetadata, "1");
}

TenantRef TenantOf(const grpc::CallbackServerContext& context) {
  if (!FromHttpEdge(context)) return {GrpcPeerTenant(PeerOfCall(context.peer()))};
  uint32_t weight = 1;
  if (!absl::SimpleAtoi(MetadataOf(context, kWeightMetadata), &weight)) weight = 1;
  return {MetadataOf(context, kTenantMetadata), weight};
}

std::optional<std::string> TraceScopeOf(const grpc::CallbackServerContext& context) {
  if (MetadataOf(context, kOwnTracesMetadata).empty()) return std::nullopt;
  return MetadataOf(context, kTenantMetadata);
}

}  // namespace tandem::gateway
