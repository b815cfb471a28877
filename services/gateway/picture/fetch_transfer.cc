#include "services/gateway/picture/fetch_transfer.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/client_text.h"
#include "services/common/base/logging.h"

namespace tandem::gateway {

FetchTransfer::FetchTransfer(FetchUrl url, const FetchRules& rules, const FetchLimits& limits,
                             uint64_t& room)
    : host_(std::move(url.host)),
      rules_(rules),
      limits_(limits),
      room_(room),
      deadline_(absl::Now() + limits.timeout),
      url_(std::move(url.url)),
      handle_(pull::MakeEasy()) {}

void FetchTransfer::Prepare() {
  CURL* const handle = handle_.get();
  headers_ = {};
  body_.clear();
  const pull::HttpOptions options = {.ca_file = limits_.ca_file,
                                     .connect_timeout = limits_.connect_timeout,
                                     .stall_timeout = limits_.stall_timeout};
  list_ = pull::Prepare(handle, url_, options, headers_);
  // Not the formats that the decoder lacks.
  curl_slist_append(list_.get(), "Accept: image/png, image/jpeg, image/webp, image/gif, image/bmp");
  curl_easy_setopt(handle, CURLOPT_HTTPGET, 1L);
  curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(handle, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
  // A proxy would resolve the name itself, and connect to addresses that nobody checks.
  curl_easy_setopt(handle, CURLOPT_PROXY, "");
  curl_easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, OpenSocket);
  curl_easy_setopt(handle, CURLOPT_OPENSOCKETDATA, this);
  curl_easy_setopt(handle, CURLOPT_FRESH_CONNECT, 1L);
  curl_easy_setopt(handle, CURLOPT_FORBID_REUSE, 1L);
  // Ends without waiting for the resolver's thread.
  curl_easy_setopt(handle, CURLOPT_QUICK_EXIT, 1L);
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, TakeHeader);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, TakeBytes);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, this);
  curl_easy_setopt(handle, CURLOPT_MAXFILESIZE_LARGE,
                   static_cast<curl_off_t>(limits_.max_file_bytes));
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT,
                   static_cast<long>(limits_.min_bytes_per_second));
  const auto left = static_cast<long>(absl::ToInt64Milliseconds(deadline_ - absl::Now()));
  curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, std::max(left, 1L));
}

curl_socket_t FetchTransfer::OpenSocket(void* self, curlsocktype, curl_sockaddr* address) {
  auto& transfer = *static_cast<FetchTransfer*>(self);
  const auto to = ReadSocketAddress(&address->addr, address->addrlen);
  if (!to.has_value() || !transfer.rules_.MayConnect(*to)) {
    transfer.refused_address_ = true;
    return CURL_SOCKET_BAD;
  }
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

size_t FetchTransfer::TakeHeader(char* bytes, size_t size, size_t count, void* self) {
  auto& transfer = *static_cast<FetchTransfer*>(self);
  transfer.header_bytes_ += size * count;
  if (transfer.header_bytes_ > transfer.limits_.max_header_bytes) return 0;
  transfer.headers_.Add({bytes, size * count});
  return size * count;
}

size_t FetchTransfer::TakeBytes(char* bytes, size_t size, size_t count, void* self) {
  auto& transfer = *static_cast<FetchTransfer*>(self);
  const size_t num = size * count;
  transfer.too_large_ = transfer.body_.size() + num > transfer.limits_.max_file_bytes;
  transfer.no_room_ = num > transfer.room_;
  if (transfer.too_large_ || transfer.no_room_) return 0;
  transfer.room_ -= num;
  transfer.body_.append(bytes, num);
  return num;
}

absl::Status FetchTransfer::Refuse(std::string_view why) const {
  return absl::InvalidArgumentError(
      absl::StrFormat("the picture cannot be fetched from %s: %s", host_, std::string(why)));
}

absl::Status FetchTransfer::ErrorOf(CURLcode code) const {
  if (too_large_ || code == CURLE_FILESIZE_EXCEEDED) {
    return Refuse(
        absl::StrFormat("it has more than %d bytes, which is the limit", limits_.max_file_bytes));
  }
  if (no_room_) return Refuse("the pictures of this request have too many bytes together");
  if (header_bytes_ > limits_.max_header_bytes) return Refuse("its headers are too long");
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
      return Refuse("the name is not known");
    case CURLE_COULDNT_CONNECT:
      return Refuse(refused_address_ ? "its address is not one of the public internet"
                                     : "there is no connection");
    case CURLE_OPERATION_TIMEDOUT:
      return Refuse("it is too slow");
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return Refuse("its certificate is not trusted");
    default:
      return Refuse(curl_easy_strerror(code));
  }
}

absl::StatusOr<bool> FetchTransfer::Redirect() {
  if (++num_redirects_ > limits_.max_redirects) {
    return Refuse(absl::StrFormat("it redirects more than %d times", limits_.max_redirects));
  }
  const auto target = pull::FollowRedirect(url_, headers_.Get("location"));
  const auto url = target.ok() ? rules_.Check(*target) : absl::StatusOr<FetchUrl>(target.status());
  if (!url.ok()) {
    // The target stays in the log: the client did not send it.
    LogInfo("picture not fetched",
            {{"host", host_}, {"redirect", ForClients(url.status()).ToString()}});
    return Refuse("it redirects to where pictures are not fetched from");
  }
  url_ = url->url;
  room_ += body_.size();
  return true;
}

absl::StatusOr<bool> FetchTransfer::Finish(CURLcode code) {
  if (code != CURLE_OK) return ErrorOf(code);
  long status = 0;
  curl_easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &status);
  switch (status) {
    case 200:
      return false;
    case 301:
    case 302:
    case 303:
    case 307:
    case 308:
      return Redirect();
    default:
      return Refuse(absl::StrFormat("it answers with status %d", status));
  }
}

}  // namespace tandem::gateway
