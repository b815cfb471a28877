#include "tools/tandem/gateway_address.h"

#include <cstdlib>

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
      ca_file(FromEnvironment("TANDEM_CA_FILE")) {}

}  // namespace tandem
