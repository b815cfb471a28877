// Which addresses belong to hosts of the public internet.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace tandem::gateway {

// An address of IPv4 or IPv6, without a port.
struct IpAddress {
  bool v6 = false;
  std::array<uint8_t, 16> bytes = {};  // of IPv4 the first four
  bool operator==(const IpAddress&) const = default;
};

// "10.0.0.1" or "::1", as inet_pton takes them; nullopt: no address.
std::optional<IpAddress> ParseIpAddress(const std::string& text);

struct SocketAddress {
  IpAddress address;
  uint16_t port = 0;
};
// nullopt: neither IPv4 nor IPv6, or cut off.
std::optional<SocketAddress> ReadSocketAddress(const sockaddr* address, socklen_t size);

// False for addresses that IANA's registries of special purposes list: of this machine (loopback,
// unspecified), private, link-local, unique-local, shared (CGNAT), documentation, benchmarks,
// multicast, reserved; and for IPv6 addresses that stand for an IPv4 address (mapped, 6to4, Teredo,
// NAT64), because a gateway on the way could turn them into one of those.
bool IsPublicAddress(const IpAddress& address);

}  // namespace tandem::gateway
