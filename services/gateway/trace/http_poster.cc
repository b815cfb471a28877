#include "services/gateway/trace/http_poster.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway {
namespace {

constexpr size_t kMaxAnswerBytes = 1 << 20;
// Longest single wait of libcurl for the network; Cancel ends it.
constexpr int kPollMilliseconds = 1000;

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};

std::string Part(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return "";
  std::string result = text;
  curl_free(text);
  return result;
}

size_t TakeBody(char* bytes, size_t size, size_t count, void* user) {
  std::string& body = *static_cast<std::string*>(user);
  if (body.size() + size * count > kMaxAnswerBytes) return 0;
  body.append(bytes, size * count);
  return size * count;
}

}  // namespace

absl::StatusOr<std::string> ParseCollectorUrl(const std::string& text) {
  const auto wrong = [&text](const char* why) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' is not http://HOST:PORT/PATH or https://HOST:PORT/PATH: %s", text, why));
  };
  if (!text.starts_with("http://") && !text.starts_with("https://")) return wrong("another scheme");
  const auto fits = [](char c) { return c > ' ' && c <= '~' && c != '@' && c != '#'; };
  if (!std::ranges::all_of(text, fits)) return wrong("a character that cannot be there");
  if (text[text.find("://") + 3] == '/') return wrong("no host");
  const std::unique_ptr<CURLU, FreeUrl> url(curl_url());
  switch (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0)) {
    case CURLUE_OK:
      break;
    case CURLUE_BAD_PORT_NUMBER:
      return wrong("the port");
    default:
      return wrong("the host");
  }
  const std::string host = Part(url.get(), CURLUPART_HOST);
  if (host.empty()) return wrong("no host");
  // libcurl has decoded it: %CA is a byte.
  if (!std::ranges::all_of(host, fits)) return wrong("the host");
  if (Part(url.get(), CURLUPART_PORT) == "0") return wrong("the port");
  if (Part(url.get(), CURLUPART_PATH) == "/") {
    curl_url_set(url.get(), CURLUPART_PATH, "/v1/traces", 0);
  }
  char* whole = nullptr;
  if (curl_url_get(url.get(), CURLUPART_URL, &whole, 0) != CURLUE_OK) return wrong("the host");
  std::string result = whole;
  curl_free(whole);
  return result;
}

HttpPoster::HttpPoster(std::string url, std::string ca_file)
    : url_(std::move(url)),
      options_({.ca_file = std::move(ca_file)}),
      multi_(pull::MakeMulti()),
      handle_(pull::MakeEasy()) {}

void HttpPoster::Cancel() {
  cancelled_ = true;
  curl_multi_wakeup(multi_.get());
}

absl::StatusOr<PostResult> HttpPoster::Post(const std::string& content_type,
                                            const std::string& body, absl::Duration timeout) {
  CURL* const handle = handle_.get();
  pull::HttpHeaders headers;
  PostResult result;
  const pull::CurlList list = pull::Prepare(handle, url_, options_, headers);
  curl_slist_append(list.get(), ("Content-Type: " + content_type).c_str());
  curl_slist_append(list.get(), "Expect:");  // sends the body without waiting for "100 Continue"
  curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(handle, CURLOPT_POSTFIELDS, body.data());
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, TakeBody);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &result.body);
  curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  const auto milliseconds = static_cast<long>(absl::ToInt64Milliseconds(timeout));
  curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, std::max(milliseconds, 1L));
  if (pull::IsLoopbackUrl(url_)) curl_easy_setopt(handle, CURLOPT_NOPROXY, "*");

  curl_multi_add_handle(multi_.get(), handle);
  const absl::Cleanup remove = [&] { curl_multi_remove_handle(multi_.get(), handle); };
  for (int running = 1; running > 0;) {
    if (cancelled_) return absl::CancelledError("cancelled");
    curl_multi_perform(multi_.get(), &running);
    if (running > 0) curl_multi_poll(multi_.get(), nullptr, 0, kPollMilliseconds, nullptr);
  }
  int num_left = 0;
  const CURLMsg* const ended = curl_multi_info_read(multi_.get(), &num_left);
  if (ended == nullptr) return absl::UnavailableError(url_ + ": no answer");
  if (ended->data.result == CURLE_WRITE_ERROR) {
    return absl::UnavailableError(absl::StrFormat("%s answers with more than %d bytes",
                                                  pull::PrintableUrl(url_), kMaxAnswerBytes));
  }
  TANDEM_RETURN_IF_ERROR(pull::CurlStatus(ended->data.result, url_));
  long status = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  result.status = static_cast<int>(status);
  curl_off_t seconds = 0;
  if (curl_easy_getinfo(handle, CURLINFO_RETRY_AFTER, &seconds) == CURLE_OK && seconds > 0) {
    result.retry_after = absl::Seconds(seconds);
  }
  return result;
}

}  // namespace tandem::gateway
