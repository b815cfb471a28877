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

std::string DefaultGatewayAddress(const std::string& system_socket) {
  const char* address = std::getenv("TANDEM_ADDRESS");
  if (address != nullptr && *address != '\0') return address;
  const std::string own = DefaultRuntimeDir() + "/gateway.sock";
  if (::access(own.c_str(), F_OK) != 0 && ::access(system_socket.c_str(), F_OK) == 0) {
    // Root may open the socket, on which it is seen who listens; of a port it is not.
    if (::geteuid() == 0) return "unix:" + system_socket;
    return kSystemGatewayAddress;
  }
  return "unix:" + own;
}

}  // namespace tandem
