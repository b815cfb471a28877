// Bytes in, one request out: HTTP/1.1 framing over Boost.Beast's parser, with limits.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "services/gateway/http/http_message.h"

namespace tandem::gateway {

struct HttpReadLimits {
  size_t max_header_bytes = 16 << 10;
  size_t max_body_bytes = 16 << 20;
  size_t max_fields = 100;
};

// Reads one request after another.  What it holds of one is bounded by the limits.  Single-thread.
class HttpRequestReader {
 public:
  enum class State {
    kIdle,    // nothing of a request yet
    kHeader,  // within the header
    kBody,    // the header is complete and sound; more of the body is to come
    kDone,    // the request is whole
    kFailed,  // failure() says why; nothing more can be read
  };

  explicit HttpRequestReader(const HttpReadLimits& limits);
  ~HttpRequestReader();

  // Takes what it can of `bytes` and returns how much.  Stops after the header, so that a request
  // can be refused before its body is read, and after the body.  What it leaves belongs in front of
  // the bytes to come.
  size_t Feed(std::string_view bytes);
  State state() const { return state_; }
  // 400 framing, 413 body, 417 expectation, 431 header, its target included, 501 transfer encoding,
  // 505.
  const HttpFailure& failure() const { return failure_; }

  // From kBody on: the request without its body.
  const HttpRequest& head() const { return head_; }
  bool http10() const { return http10_; }
  bool keep_alive() const { return keep_alive_; }
  // Whether the client waits for "100 Continue" before it sends the body.
  bool expects_continue() const { return expects_continue_; }
  size_t body_bytes() const;

  // REQUIRES: kDone.  The request; the reader is idle again.
  HttpRequest Take();

 private:
  struct Parser;
  void Fail(int http_status, std::string message);
  void CheckHeader();
  bool CheckTarget(std::string_view target);

  const HttpReadLimits limits_;
  State state_ = State::kIdle;
  std::unique_ptr<Parser> parser_;  // null while idle
  HttpRequest head_;
  HttpFailure failure_;
  bool http10_ = false;
  bool keep_alive_ = false;
  bool expects_continue_ = false;
};

}  // namespace tandem::gateway
