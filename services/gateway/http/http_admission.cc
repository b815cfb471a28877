#include "services/gateway/http/http_admission.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"

namespace tandem::gateway {
namespace {

namespace asio = boost::asio;

std::string_view BearerKey(const HttpRequest& head) {
  const std::string_view field = head.Header("authorization").value_or("");
  const absl::string_view view(field.data(), field.size());
  if (absl::StartsWithIgnoreCase(view, "bearer ")) {
    const absl::string_view key = absl::StripAsciiWhitespace(view.substr(7));
    return {key.data(), key.size()};
  }
  return head.Header("x-api-key").value_or("");
}

// "[::1]:8080" -> "::1", "Example.com:80" -> "example.com".
std::string NameOf(std::string_view host) {
  if (host.starts_with('[')) return std::string(host.substr(1, host.find(']') - 1));
  return absl::AsciiStrToLower(std::string(host.substr(0, host.find(':'))));
}

HttpFailure Forbidden(const std::string& why) {
  return {403, absl::PermissionDeniedError(why), std::nullopt};
}

}  // namespace

std::optional<HttpFailure> RefuseHost(const HttpRequest& head,
                                      const std::vector<std::string>& names) {
  const auto host = head.Header("host");
  if (!host.has_value()) return {};
  const std::string name = NameOf(*host);
  boost::system::error_code not_an_address;
  asio::ip::make_address(name, not_an_address);
  if (!not_an_address || name == "localhost" || name.ends_with(".localhost") ||
      std::find(names.begin(), names.end(), name) != names.end()) {
    return {};
  }
  return Forbidden(absl::StrFormat("this server does not go by the name '%s' (--http-name adds it)",
                                   ClientText(name)));
}

std::variant<HttpHeaders, HttpFailure> AdmitOrigin(const HttpRequest& head,
                                                   const std::vector<std::string>& allowed) {
  const auto origin = head.Header("origin");
  if (!origin.has_value()) return HttpHeaders();
  const std::string_view host = head.Header("host").value_or("");
  const size_t scheme = origin->find("://");
  if (scheme != std::string_view::npos && origin->substr(scheme + 3) == host) return HttpHeaders();
  for (const std::string& one : allowed) {
    if (one != "*" && one != *origin) continue;
    return HttpHeaders{{"Access-Control-Allow-Origin", one == "*" ? "*" : std::string(*origin)},
                       {"Vary", "Origin"},
                       {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After, traceparent"}};
  }
  return Forbidden(
      absl::StrFormat("pages of origin '%s' may not call this server (--http-cors allows them)",
                      ClientText(*origin)));
}

bool IsGet(const HttpRequest& head) { return head.method == "GET" || head.method == "HEAD"; }

bool IsLocal(const HttpRequest& head, const std::string& peer) {
  boost::system::error_code error;
  const asio::ip::address address = asio::ip::make_address(peer, error);
  if (error) return false;
  const bool mapped = address.is_v6() && address.to_v6().is_v4_mapped();
  const bool loopback =
      mapped ? asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).is_loopback()
             : address.is_loopback();
  return loopback && !head.Header("x-forwarded-for").has_value() &&
         !head.Header("forwarded").has_value() && !head.Header("via").has_value();
}

std::variant<std::optional<KeyLease>, HttpFailure> AdmitSender(const HttpRequest& head,
                                                               const HttpRoute& route,
                                                               const std::string& peer,
                                                               ApiKeys* keys, absl::Time now) {
  if (route.open || (route.local && IsLocal(head, peer))) return std::nullopt;
  if (keys == nullptr) {
    if (!route.local) return std::nullopt;
    return Forbidden(
        "this path is for this machine alone, or for holders of an API key (--http-api-keys)");
  }
  const bool counts = route.counts || !IsGet(head);
  auto admitted = keys->Admit(BearerKey(head), now, counts);
  if (auto* failure = std::get_if<HttpFailure>(&admitted)) return std::move(*failure);
  return std::get<KeyLease>(std::move(admitted));
}

}  // namespace tandem::gateway
