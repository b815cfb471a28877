// Where the cluster's sockets are.
#pragma once

#include <string>

namespace tandem {

// $XDG_RUNTIME_DIR/tandem, or /tmp/tandem-UID where that is not set.
std::string DefaultRuntimeDir();

// The gateway to talk to: $TANDEM_ADDRESS, or unix:DefaultRuntimeDir()/gateway.sock.
std::string DefaultGatewayAddress();

}  // namespace tandem
