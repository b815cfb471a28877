#include "services/gateway/picture/fetch_rules.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway {
namespace {

constexpr size_t kMaxUrlBytes = 8192;

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};

std::string Part(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return "";
  std::string result = text;
  curl_free(text);
  return result;
}

std::optional<uint16_t> ParsePort(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

// In small letters.  The last label must not be a number: resolvers take "127.1" for an address.
bool IsHostName(std::string_view name) {
  if (name.empty() || name.size() > 253 || name.front() == '.' || name.back() == '.') return false;
  if (name.find("..") != name.npos) return false;
  const bool plain = std::ranges::all_of(name, [](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' || c == '.' || c == '_';
  });
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return plain && !absl::ascii_isdigit(static_cast<unsigned char>(last.front()));
}

// The address in "[::1]" or "127.0.0.1".
std::optional<IpAddress> LiteralOf(const std::string& host) {
  if (!host.starts_with('[')) {
    const auto address = ParseIpAddress(host);
    return address.has_value() && !address->v6 ? address : std::nullopt;
  }
  if (!host.ends_with(']')) return std::nullopt;
  const auto address = ParseIpAddress(host.substr(1, host.size() - 2));
  return address.has_value() && address->v6 ? address : std::nullopt;
}

}  // namespace

absl::StatusOr<FetchHost> ParseFetchHost(const std::string& text) {
  const auto wrong = absl::InvalidArgumentError(absl::StrFormat(
      "'%s' is no host to fetch pictures from: HOST or HOST:PORT is expected, where "
      "HOST is a name, *.NAME, an IPv4 address or an [IPv6 address]",
      ClientText(text)));
  FetchHost host;
  std::string name = absl::AsciiStrToLower(text);
  const size_t colon = name.rfind(':');
  if (colon != name.npos && name.find(']', colon) == name.npos) {
    const auto port = ParsePort(std::string_view(name).substr(colon + 1));
    if (!port.has_value()) return wrong;
    host.port = *port;
    name.resize(colon);
  }
  host.address = LiteralOf(name);
  if (host.address.has_value()) return host;
  host.below = name.starts_with("*.");
  host.name = host.below ? name.substr(2) : name;
  if (!IsHostName(host.name)) return wrong;
  return host;
}

absl::StatusOr<FetchRules> FetchRules::Create(const std::vector<std::string>& hosts) {
  std::vector<FetchHost> parsed;
  for (const std::string& host : hosts) {
    TANDEM_ASSIGN_OR_RETURN(parsed.emplace_back(), ParseFetchHost(host));
  }
  return FetchRules(std::move(parsed));
}

absl::StatusOr<FetchUrl> FetchRules::Check(const std::string& text) const {
  const auto wrong = [](std::string_view why) {
    return absl::InvalidArgumentError(absl::string_view(why.data(), why.size()));
  };
  if (text.size() > kMaxUrlBytes) {
    return wrong(absl::StrFormat("the URL has %d bytes; at most %d are accepted", text.size(),
                                 kMaxUrlBytes));
  }
  // Parsers differ in what they make of these.
  if (!std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~' && c != '\\'; })) {
    return wrong("the URL has characters that must be written as %NN");
  }
  const std::unique_ptr<CURLU, FreeUrl> url(curl_url());
  switch (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), CURLU_DISALLOW_USER)) {
    case CURLUE_OK:
      break;
    case CURLUE_USER_NOT_ALLOWED:
      return wrong("the URL has a user or a password");
    case CURLUE_UNSUPPORTED_SCHEME:
      return wrong("the URL is neither http nor https");
    default:
      return wrong("the URL is malformed");
  }
  const std::string scheme = Part(url.get(), CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") return wrong("the URL is neither http nor https");
  curl_url_set(url.get(), CURLUPART_FRAGMENT, nullptr, 0);
  const std::string host = absl::AsciiStrToLower(Part(url.get(), CURLUPART_HOST));
  const std::optional<IpAddress> address = LiteralOf(host);
  if ((!address.has_value() && !IsHostName(host)) || !Part(url.get(), CURLUPART_ZONEID).empty()) {
    return wrong("the URL's host is neither a name nor an address");
  }
  const auto port = ParsePort(Part(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT));
  const uint16_t default_port = scheme == "https" ? 443 : 80;
  const bool allowed = std::ranges::any_of(hosts_, [&](const FetchHost& rule) {
    if (port != (rule.port == 0 ? default_port : rule.port)) return false;
    if (rule.address.has_value() || address.has_value()) return rule.address == address;
    return rule.below ? host.ends_with("." + rule.name) : host == rule.name;
  });
  if (!allowed) {
    return wrong(absl::StrFormat(
        "this server fetches no pictures from %s%s: --fetch-images names its hosts", host,
        port.value_or(0) == default_port ? "" : absl::StrFormat(":%d", port.value_or(0))));
  }
  return FetchUrl{.url = Part(url.get(), CURLUPART_URL), .host = host};
}

bool FetchRules::MayConnect(const SocketAddress& to) const {
  if (IsPublicAddress(to.address)) return true;
  return std::ranges::any_of(hosts_, [&](const FetchHost& rule) {
    const bool port = rule.port == to.port || (rule.port == 0 && (to.port == 80 || to.port == 443));
    return port && rule.address == to.address;
  });
}

}  // namespace tandem::gateway
