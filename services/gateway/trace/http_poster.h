// POSTs to one URL over a connection that is kept.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tandem::gateway {

struct HttpUrl {
  std::string host;  // a name or an address
  std::string port;
  std::string target;  // "/v1/traces"
};

// "http://HOST[:PORT][/PATH]"; INVALID_ARGUMENT for all else.
absl::StatusOr<HttpUrl> ParseHttpUrl(const std::string& url);

struct PostResult {
  int status = 0;
  std::string body;
  std::optional<absl::Duration> retry_after;  // the header, in seconds or as a date
};

// Single-thread but for Cancel.
class HttpPoster {
 public:
  explicit HttpPoster(HttpUrl url);
  ~HttpPoster();

  // UNAVAILABLE: nobody there, or no whole answer within `timeout`; CANCELLED.
  absl::StatusOr<PostResult> Post(const std::string& content_type, const std::string& body,
                                  absl::Duration timeout);
  // Any thread: ends the Post under way and those to come.
  void Cancel();

 private:
  class Connection;
  absl::StatusOr<PostResult> PostOnce(const std::string& content_type, const std::string& body,
                                      absl::Time deadline);

  const HttpUrl url_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace tandem::gateway
