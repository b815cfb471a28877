// POSTs to one URL over a connection that is kept, by HTTP or HTTPS (libcurl).
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/pull/http.h"

namespace tandem::gateway {

// A collector's URL, "http://HOST[:PORT][/PATH]" or https; without a path the result has /v1/traces.
// INVALID_ARGUMENT for anything else, user names and fragments included.
absl::StatusOr<std::string> ParseCollectorUrl(const std::string& url);

struct PostResult {
  int status = 0;
  std::string body;
  std::optional<absl::Duration> retry_after;  // the header, in seconds or as a date
};

// Single-thread; only Cancel may be called from any thread.
class HttpPoster {
 public:
  // `url`: of ParseCollectorUrl.  `ca_file`: PEM certificates to trust; empty: the system's.
  // Uses the proxies of the environment, except for addresses of this machine.
  HttpPoster(std::string url, std::string ca_file);

  // UNAVAILABLE: no server, or no whole answer within `timeout`.  FAILED_PRECONDITION: the
  // certificate is not trusted.  CANCELLED.  Redirects are answers like any other.
  absl::StatusOr<PostResult> Post(const std::string& content_type, const std::string& body,
                                  absl::Duration timeout);
  // Any thread: ends the Post under way and those to come.
  void Cancel();

 private:
  const std::string url_;
  const pull::HttpOptions options_;
  const pull::CurlMulti multi_;  // keeps the connection
  const pull::CurlEasy handle_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace tandem::gateway
