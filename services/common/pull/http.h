// HTTP as pulling needs it, over libcurl: what every request has, and where a redirect may lead.
//
// Redirects are followed here and not by libcurl, so that each hop's headers are seen, a token goes
// to the origin it was given for alone, and nothing leads from https to http or to another scheme.
// Proxies are libcurl's: http_proxy, https_proxy, all_proxy and no_proxy of the environment.
#pragma once

#include <curl/curl.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tandem::pull {

struct HttpOptions {
  std::string token;         // for `token_origin`; empty: none
  std::string token_origin;  // "https://huggingface.co:443", as OriginOf writes it
  std::string ca_file;       // PEM; empty: the system's certificates
  std::string user_agent = "tandem";
  std::function<bool()> keep_going;  // asked once a second; false: CANCELLED; empty: always
  absl::Duration connect_timeout = absl::Seconds(30);
  absl::Duration stall_timeout = absl::Seconds(30);  // without a byte: the connection is given up
};

// "https://host:443" of a URL.  INVALID_ARGUMENT unless it is http or https with a host.
absl::StatusOr<std::string> OriginOf(const std::string& url);
// For messages: scheme, host and path; never the query, which may be a signature.
std::string PrintableUrl(const std::string& url);
// Where `location` leads from `base`.  PERMISSION_DENIED for another scheme than http and https,
// and for http from https.
absl::StatusOr<std::string> FollowRedirect(const std::string& base, const std::string& location);
// Whether a host of `url` is this machine: 127.0.0.0/8, ::1, localhost.
bool IsLoopbackUrl(const std::string& url);

// The headers of one answer; names in small letters, values at most 8 KiB, the last of a name wins.
class HttpHeaders {
 public:
  // One line, as libcurl gives it; a status line begins again.
  void Add(std::string_view line);
  std::string Get(const std::string& name) const;  // empty: not there
  std::optional<uint64_t> Number(const std::string& name) const;

 private:
  std::map<std::string, std::string> fields_;
};

// "bytes 5-9/20": its first byte and the whole size.
struct ContentRange {
  uint64_t begin = 0, total = 0;
};
std::optional<ContentRange> ParseContentRange(const std::string& text);

// Both kinds of handle are void* to the compiler.
struct FreeEasy {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct FreeMulti {
  void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using CurlEasy = std::unique_ptr<CURL, FreeEasy>;
using CurlMulti = std::unique_ptr<CURLM, FreeMulti>;
using CurlList = std::unique_ptr<curl_slist, FreeList>;

CurlEasy MakeEasy();
CurlMulti MakeMulti();

// Sets all that does not depend on the request's kind.  The result must outlive the transfer.
CurlList Prepare(CURL* handle, const std::string& url, const HttpOptions& options,
                 HttpHeaders& headers);

struct HttpReply {
  long status = 0;
  HttpHeaders headers;
  std::string body;  // of a GET
  std::string url;   // that answered
  std::optional<int64_t> retry_after_seconds;
};

// One request to `url`, without following redirects.  A body over `max_body_bytes` is an error.
// UNAVAILABLE: no answer, worth trying again.  FAILED_PRECONDITION: the certificate does not hold.
// CANCELLED: options.keep_going.
absl::StatusOr<HttpReply> Ask(const char* method, const std::string& url,
                              const HttpOptions& options, size_t max_body_bytes = 0);

// What libcurl's code means.
absl::Status CurlStatus(CURLcode code, const std::string& url);

}  // namespace tandem::pull
