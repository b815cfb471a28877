#include "services/gateway/picture/public_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <span>

namespace tandem::gateway {
namespace {

struct Prefix {
  std::array<uint8_t, 4> bytes;
  int bits;
};

constexpr Prefix kSpecialV4[] = {
    {{0}, 8},              // this network
    {{10}, 8},             // private
    {{100, 64}, 10},       // shared (CGNAT)
    {{127}, 8},            // loopback
    {{169, 254}, 16},      // link-local
    {{172, 16}, 12},       // private
    {{192, 0, 0}, 24},     // protocols
    {{192, 0, 2}, 24},     // documentation
    {{192, 31, 196}, 24},  // AS112
    {{192, 52, 193}, 24},  // AMT
    {{192, 88, 99}, 24},   // 6to4 relays
    {{192, 168}, 16},      // private
    {{192, 175, 48}, 24},  // AS112
    {{198, 18}, 15},       // benchmarks
    {{198, 51, 100}, 24},  // documentation
    {{203, 0, 113}, 24},   // documentation
    {{224}, 3},            // multicast, reserved, broadcast
};

// All global unicast addresses of IPv6 are in 2000::/3; these parts of it are special.
constexpr Prefix kGlobalV6 = {{0x20}, 3};
constexpr Prefix kSpecialV6[] = {
    {{0x20, 0x01, 0x00}, 23},        // protocols: Teredo, ORCHID, benchmarks
    {{0x20, 0x01, 0x0d, 0xb8}, 32},  // documentation
    {{0x20, 0x02}, 16},              // 6to4
    {{0x3f, 0xff, 0x00}, 20},        // documentation
};

bool Has(const Prefix& prefix, std::span<const uint8_t> address) {
  for (int bit = 0; bit < prefix.bits; ++bit) {
    const int mask = 0x80 >> (bit % 8);
    if (((prefix.bytes[bit / 8] ^ address[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

}  // namespace

std::optional<IpAddress> ParseIpAddress(const std::string& text) {
  IpAddress address;
  if (::inet_pton(AF_INET, text.c_str(), address.bytes.data()) == 1) return address;
  address.v6 = true;
  if (::inet_pton(AF_INET6, text.c_str(), address.bytes.data()) == 1) return address;
  return std::nullopt;
}

std::optional<SocketAddress> ReadSocketAddress(const sockaddr* address, socklen_t size) {
  SocketAddress read;
  if (address->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    sockaddr_in v4;
    std::memcpy(&v4, address, sizeof(v4));
    std::memcpy(read.address.bytes.data(), &v4.sin_addr, sizeof(v4.sin_addr));
    read.port = ntohs(v4.sin_port);
    return read;
  }
  if (address->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    sockaddr_in6 v6;
    std::memcpy(&v6, address, sizeof(v6));
    read.address.v6 = true;
    std::memcpy(read.address.bytes.data(), &v6.sin6_addr, sizeof(v6.sin6_addr));
    read.port = ntohs(v6.sin6_port);
    return read;
  }
  return std::nullopt;
}

bool IsPublicAddress(const IpAddress& address) {
  const auto has = [&](const Prefix& prefix) { return Has(prefix, address.bytes); };
  if (!address.v6) return std::ranges::none_of(kSpecialV4, has);
  return has(kGlobalV6) && std::ranges::none_of(kSpecialV6, has);
}

}  // namespace tandem::gateway
