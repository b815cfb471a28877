#include "tools/tandem/gateway_address.h"

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "tools/tandem/address.h"

namespace tandem {
namespace {

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

GatewayAddress::GatewayAddress()
    : target(DefaultGatewayAddress()),
      api_key(FromEnvironment("TANDEM_API_KEY")),
      ca_file(FromEnvironment("TANDEM_CA_FILE")) {
  uint32_t uid = 0;
  if (absl::SimpleAtoi(FromEnvironment("TANDEM_TRUST_UID"), &uid)) trusted_uid = uid;
}

}  // namespace tandem
