// One picture on its way from another server: a URL, and those that it redirects to.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/common/pull/http.h"
#include "services/gateway/picture/fetch_rules.h"

namespace tandem::gateway {

struct FetchLimits {
  std::string ca_file;  // PEM; empty: the system's certificates
  int max_redirects = 3;
  uint64_t max_file_bytes = uint64_t{20} << 20;  // as PictureDecoderOptions
  uint64_t max_header_bytes = uint64_t{64} << 10;
  absl::Duration connect_timeout = absl::Seconds(5);
  absl::Duration timeout = absl::Seconds(30);  // of a picture, with its redirects
  // It is given up if less than min_bytes_per_second come for so long.
  absl::Duration stall_timeout = absl::Seconds(5);
  uint64_t min_bytes_per_second = 1024;
};

// Single-thread.  Without proxies, cookies, credentials and compression; over HTTP/1.1, on a connection of
// its own.  Where a connection leads is checked by its address when it is made, after names are
// resolved: so it does not matter what a name meant before.
class FetchTransfer {
 public:
  // `rules`: Borrowed; must outlive this, as must `room`: the bytes that may still be received, which
  // the transfer takes its own from.
  FetchTransfer(FetchUrl url, const FetchRules& rules, const FetchLimits& limits, uint64_t& room);
  FetchTransfer(const FetchTransfer&) = delete;
  FetchTransfer& operator=(const FetchTransfer&) = delete;

  // Sets the handle up for the next URL; then a multi handle runs it.
  void Prepare();
  CURL* handle() const { return handle_.get(); }
  // After the handle's end.  True: it is redirected; Prepare it again.  INVALID_ARGUMENT gives the
  // reason, by the host of the first URL, as a sentence for the client: no bytes of the answer, and no
  // address or host that the client did not send.
  absl::StatusOr<bool> Finish(CURLcode code);
  // REQUIRES Finish returned false.
  std::string TakeBody() { return std::move(body_); }

 private:
  static curl_socket_t OpenSocket(void* self, curlsocktype purpose, curl_sockaddr* address);
  static size_t TakeHeader(char* bytes, size_t size, size_t count, void* self);
  static size_t TakeBytes(char* bytes, size_t size, size_t count, void* self);
  absl::Status Refuse(std::string_view why) const;
  absl::Status ErrorOf(CURLcode code) const;
  absl::StatusOr<bool> Redirect();

  const std::string host_;  // of the client's URL
  const FetchRules& rules_;
  const FetchLimits limits_;
  uint64_t& room_;
  const absl::Time deadline_;
  std::string url_;
  int num_redirects_ = 0;
  bool refused_address_ = false;
  bool too_large_ = false;
  bool no_room_ = false;
  uint64_t header_bytes_ = 0;
  pull::HttpHeaders headers_;
  std::string body_;
  pull::CurlList list_;
  const pull::CurlEasy handle_;  // last: it points to the members above
};

}  // namespace tandem::gateway
