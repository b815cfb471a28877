// HTTP/1.1 framing with limits: bytes in, requests out.  The framing is our own, byte by byte.
// Boost.Beast's parser gets each header whole, in one call: with pieces it exceeds its own limit
// for headers, and violates its own preconditions in chunked bodies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "services/gateway/http/http_message.h"

namespace tandem::gateway {

struct HttpReadLimits {
  size_t max_header_bytes = 16 << 10;  // at most 64 KiB
  size_t max_body_bytes = 16 << 20;
  size_t max_fields = 100;
};

// Reads one request after another.  The limits bound its memory.  Single-thread.
class HttpRequestReader {
 public:
  enum class State {
    kIdle,    // nothing of a request yet
    kHeader,  // within the header
    kBody,    // the header is complete and valid; the body is incomplete
    kDone,    // the request is whole
    kFailed,  // failure() says why; nothing more can be read
  };

  explicit HttpRequestReader(const HttpReadLimits& limits);
  ~HttpRequestReader();

  // Consumes bytes and returns how many.  Stops after the header, so that a request can be refused
  // before its body is read, and after the body.  The same bytes give the same requests and
  // failures, however they are split.
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
  // Frees the body; nothing more can be read.
  void Discard();

 private:
  struct Progress;
  size_t FeedHeader(std::string_view bytes);
  size_t FeedBody(std::string_view bytes);
  void ParseHeader();
  void CheckFields();
  void BeginBody(uint64_t content_length);
  bool CheckTarget(std::string_view target);
  void Fail(int http_status, const std::string& message);

  const HttpReadLimits limits_;
  State state_ = State::kIdle;
  std::unique_ptr<Progress> progress_;  // null while idle
  HttpRequest head_;
  HttpFailure failure_;
  bool http10_ = false;
  bool keep_alive_ = false;
  bool expects_continue_ = false;
};

}  // namespace tandem::gateway
