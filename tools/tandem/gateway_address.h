// The address of a gateway, and credentials for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tandem {

struct GatewayAddress {
  GatewayAddress();
  // Without a key.
  GatewayAddress(std::string gateway) : target(std::move(gateway)) {}  // NOLINT: a string is one

  // unix:PATH or HOST:PORT (gRPC), or http[s]://HOST[:PORT][/PREFIX] (the HTTP port).
  std::string target;
  std::string api_key;                  // for the HTTP port
  std::string ca_file;                  // PEM; empty: the system's
  std::optional<uint32_t> trusted_uid;  // of another user whose socket is trusted

  // Whether the target is an HTTP port.
  bool is_http() const { return target.starts_with("http://") || target.starts_with("https://"); }
};

}  // namespace tandem
