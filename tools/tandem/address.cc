#include "tools/tandem/address.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_format.h"

namespace tandem {

std::string DefaultRuntimeDir() {
  const char* xdg = std::getenv("XDG_RUNTIME_DIR");
  if (xdg != nullptr && *xdg != '\0') return absl::StrFormat("%s/tandem", xdg);
  return absl::StrFormat("/tmp/tandem-%d", ::getuid());
}

std::string DefaultGatewayAddress() {
  const char* address = std::getenv("TANDEM_ADDRESS");
  if (address != nullptr && *address != '\0') return address;
  return absl::StrFormat("unix:%s/gateway.sock", DefaultRuntimeDir());
}

}  // namespace tandem
