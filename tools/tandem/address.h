// Where the cluster's sockets are.
#pragma once

#include <string>

namespace tandem {

// $XDG_RUNTIME_DIR/tandem, or /tmp/tandem-UID where that is not set.
std::string DefaultRuntimeDir();

// Where the gateway of the systemd units has its socket, which is not for other users to open...
inline constexpr char kSystemGatewaySocket[] = "/run/tandem/gateway.sock";
// ... and where it listens for them (deploy/systemd/etc/gateway.toml).
inline constexpr char kSystemGatewayAddress[] = "127.0.0.1:50051";

// The gateway to talk to: $TANDEM_ADDRESS; else one's own, unix:DefaultRuntimeDir()/gateway.sock;
// else, when that is not there and `system_socket` is, the system's: by that socket for root, who
// may open it, by its port for other users.
std::string DefaultGatewayAddress(const std::string& system_socket = kSystemGatewaySocket);

}  // namespace tandem
