// Addresses of the cluster's sockets.
#pragma once

#include <string>

namespace tandem {

// $XDG_RUNTIME_DIR/tandem, or /tmp/tandem-UID if that is not set.
std::string DefaultRuntimeDir();

// The socket of the systemd units' gateway, which other users cannot open ...
inline constexpr char kSystemGatewaySocket[] = "/run/tandem/gateway.sock";
// ... and its port for other users (deploy/systemd/etc/gateway.toml).
inline constexpr char kSystemGatewayAddress[] = "127.0.0.1:50051";

// The default gateway: $TANDEM_ADDRESS; else the user's own, unix:DefaultRuntimeDir()/gateway.sock;
// else, if that socket does not exist and `system_socket` does, the system's: its socket for root,
// its port for other users.
std::string DefaultGatewayAddress(const std::string& system_socket = kSystemGatewaySocket);

}  // namespace tandem
