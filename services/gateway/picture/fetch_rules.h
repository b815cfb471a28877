// From where pictures may be fetched: the hosts of --fetch-images.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gateway/picture/public_address.h"

namespace tandem::gateway {

// One host of --fetch-images.
struct FetchHost {
  std::string name;    // in small letters; empty where it is an address
  bool below = false;  // *.NAME: every name that ends with ".NAME", and not NAME itself
  std::optional<IpAddress> address;  // a literal one
  uint16_t port = 0;                 // 0: the default port of the URL's scheme
};

// HOST or HOST:PORT, where HOST is a name, *.NAME, an IPv4 address or [an IPv6 address].
// INVALID_ARGUMENT names `text` and what it should be.
absl::StatusOr<FetchHost> ParseFetchHost(const std::string& text);

// A URL that the rules allow.
struct FetchUrl {
  std::string url;   // in its normal form, without a fragment
  std::string host;  // as errors show it
};

// Immutable.
class FetchRules {
 public:
  // As ParseFetchHost.
  static absl::StatusOr<FetchRules> Create(const std::vector<std::string>& hosts);

  // INVALID_ARGUMENT unless it is http or https, without user and password, of a host and a port of
  // the rules.  The error names only the host.
  absl::StatusOr<FetchUrl> Check(const std::string& url) const;
  // Whether a connection may lead there: to public addresses, and to those that the rules name as
  // such, at the port that they name.
  bool MayConnect(const SocketAddress& to) const;

 private:
  explicit FetchRules(std::vector<FetchHost> hosts) : hosts_(std::move(hosts)) {}

  std::vector<FetchHost> hosts_;
};

// The URLs of one request's pictures.
struct PictureUrls {
  const FetchRules* rules = nullptr;  // Borrowed.  Null: nothing is fetched.
  std::set<std::string> checked;      // in their normal form
};

}  // namespace tandem::gateway
