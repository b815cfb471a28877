#include "services/common/rpc/execution_address.h"

#include <cstdlib>

#include "absl/strings/str_format.h"
#include "services/common/rpc/unix_socket.h"

namespace tandem {

std::string ExecutionAddress(const std::string& worker_address, uint32_t port) {
  if (UnixSocketPath(worker_address)) return worker_address + ".exec";
  return absl::StrFormat("%s:%d", worker_address.substr(0, worker_address.rfind(':')), port);
}

uint32_t PortOf(const std::string& address) {
  if (UnixSocketPath(address)) return 0;
  return static_cast<uint32_t>(std::strtoul(address.c_str() + address.rfind(':') + 1, nullptr, 10));
}

}  // namespace tandem
