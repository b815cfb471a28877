#include "services/gateway/http/peer_tenant.h"

#include <boost/asio/ip/address.hpp>
#include <charconv>

#include "absl/strings/str_format.h"

namespace tandem::gateway {

namespace ip = boost::asio::ip;

std::string PeerTenant(const std::string& address, uint16_t port) {
  boost::system::error_code error;
  ip::address peer = ip::make_address(address, error);
  if (error) return "peer:" + address;
  if (peer.is_v6() && peer.to_v6().is_v4_mapped()) {
    peer = ip::make_address_v4(ip::v4_mapped, peer.to_v6());
  }
  if (peer.is_loopback()) return absl::StrFormat("peer:%s:%d", peer.to_string(), port);
  if (peer.is_v4()) return "peer:" + peer.to_string();
  ip::address_v6::bytes_type bytes = peer.to_v6().to_bytes();
  for (size_t i = 8; i < bytes.size(); ++i) bytes[i] = 0;
  return "peer:" + ip::address_v6(bytes).to_string() + "/64";
}

std::string GrpcPeerTenant(const std::string& peer) {
  if (peer.starts_with("unix:uid=")) return "peer:" + peer;
  if (peer.starts_with("unix")) return "peer:unix";
  const bool scheme = peer.starts_with("ipv4:") || peer.starts_with("ipv6:");
  const size_t begin = scheme ? 5 : 0, colon = peer.rfind(':');
  if (colon == std::string::npos || colon < begin) return "peer:" + peer;
  std::string host = peer.substr(begin, colon - begin);
  for (const char* bracket : {"[", "]", "%5B", "%5D"}) {
    const std::string text = bracket;
    if (const size_t at = host.find(text); at != std::string::npos) host.erase(at, text.size());
  }
  uint16_t port = 0;
  std::from_chars(peer.data() + colon + 1, peer.data() + peer.size(), port);
  return PeerTenant(host, port);
}

}  // namespace tandem::gateway
