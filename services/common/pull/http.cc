#include "services/common/pull/http.h"

#include <charconv>
#include <mutex>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::pull {
namespace {

struct UrlFree {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, UrlFree>;

Url Parse(const std::string& text) {
  Url url(curl_url());
  if (url != nullptr && curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) {
    url.reset();
  }
  return url;
}

std::string Part(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (url == nullptr || curl_url_get(url, part, &text, flags) != CURLUE_OK) return "";
  std::string result = text;
  curl_free(text);
  return result;
}

size_t TakeHeader(char* bytes, size_t size, size_t count, void* headers) {
  static_cast<HttpHeaders*>(headers)->Add({bytes, size * count});
  return size * count;
}

int AskWhetherToGoOn(void* options, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const HttpOptions*>(options)->keep_going() ? 0 : 1;
}

struct Body {
  std::string text;
  size_t max_bytes;
};

size_t TakeBody(char* bytes, size_t size, size_t count, void* user) {
  auto& body = *static_cast<Body*>(user);
  if (body.text.size() + size * count > body.max_bytes) return 0;
  body.text.append(bytes, size * count);
  return size * count;
}

}  // namespace

absl::StatusOr<std::string> OriginOf(const std::string& text) {
  const Url url = Parse(text);
  const std::string scheme = absl::AsciiStrToLower(Part(url.get(), CURLUPART_SCHEME));
  const std::string host = absl::AsciiStrToLower(Part(url.get(), CURLUPART_HOST));
  if (host.empty() || (scheme != "http" && scheme != "https")) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' is no http or https address", PrintableUrl(text)));
  }
  return scheme + "://" + host + ":" + Part(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

std::string PrintableUrl(const std::string& text) {
  const Url url = Parse(text);
  if (url == nullptr) return absl::CHexEscape(text.substr(0, text.find('?')).substr(0, 100));
  for (const CURLUPart part : {CURLUPART_QUERY, CURLUPART_FRAGMENT, CURLUPART_USER,
                               CURLUPART_PASSWORD, CURLUPART_OPTIONS}) {
    curl_url_set(url.get(), part, nullptr, 0);
  }
  return absl::CHexEscape(Part(url.get(), CURLUPART_URL));
}

absl::StatusOr<std::string> FollowRedirect(const std::string& base, const std::string& location) {
  const Url url = Parse(base);
  if (url == nullptr || location.empty() ||
      curl_url_set(url.get(), CURLUPART_URL, location.c_str(), 0) != CURLUE_OK) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s redirects to '%s', which is no http or https address",
                        PrintableUrl(base), PrintableUrl(location)));
  }
  const std::string target = Part(url.get(), CURLUPART_URL);
  TANDEM_ASSIGN_OR_RETURN(const std::string from, OriginOf(base));
  const auto to = OriginOf(target);
  if (!to.ok()) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s redirects to %s, which is neither http nor https", PrintableUrl(base),
                        PrintableUrl(target)));
  }
  if (from.starts_with("https:") && !to->starts_with("https:")) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s redirects from https to %s, which is not encrypted", PrintableUrl(base),
                        PrintableUrl(target)));
  }
  return target;
}

bool IsLoopbackUrl(const std::string& text) {
  const std::string host = absl::AsciiStrToLower(Part(Parse(text).get(), CURLUPART_HOST));
  if (host == "localhost" || host == "[::1]") return true;
  return host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos;
}

void HttpHeaders::Add(std::string_view line) {
  if (line.starts_with("HTTP/")) {
    fields_.clear();
    return;
  }
  const size_t colon = line.find(':');
  if (colon == line.npos || fields_.size() > 200) return;
  std::string value(line.substr(colon + 1, 8192));
  absl::StripAsciiWhitespace(&value);
  fields_[absl::AsciiStrToLower(std::string(line.substr(0, colon)))] = std::move(value);
}

std::string HttpHeaders::Get(const std::string& name) const {
  const auto found = fields_.find(name);
  return found == fields_.end() ? "" : found->second;
}

std::optional<uint64_t> HttpHeaders::Number(const std::string& name) const {
  const std::string text = Get(name);
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<ContentRange> ParseContentRange(const std::string& text) {
  ContentRange range;
  const size_t dash = text.find('-'), slash = text.find('/');
  if (!text.starts_with("bytes ") || dash == text.npos || slash == text.npos) return std::nullopt;
  const auto number = [&text](size_t begin, size_t end, uint64_t& value) {
    const auto [last, error] = std::from_chars(text.data() + begin, text.data() + end, value);
    return error == std::errc() && last == text.data() + end;
  };
  if (!number(6, dash, range.begin) || !number(slash + 1, text.size(), range.total)) {
    return std::nullopt;
  }
  return range;
}

CurlEasy MakeEasy() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  CurlEasy handle(curl_easy_init());
  TANDEM_CHECK(handle != nullptr);
  return handle;
}

CurlMulti MakeMulti() {
  CurlMulti handle(curl_multi_init());
  TANDEM_CHECK(handle != nullptr);
  return handle;
}

CurlList Prepare(CURL* handle, const std::string& url, const HttpOptions& options,
                 HttpHeaders& headers) {
  curl_easy_reset(handle);
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(handle, CURLOPT_SSL_VERIFYPEER, 1L);
  curl_easy_setopt(handle, CURLOPT_SSL_VERIFYHOST, 2L);
  if (!options.ca_file.empty()) curl_easy_setopt(handle, CURLOPT_CAINFO, options.ca_file.c_str());
  curl_easy_setopt(handle, CURLOPT_USERAGENT, options.user_agent.c_str());
  curl_easy_setopt(handle, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(absl::ToInt64Milliseconds(options.connect_timeout)));
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME,
                   static_cast<long>(absl::ToInt64Seconds(options.stall_timeout)));
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, TakeHeader);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, &headers);
  // Never to a proxy, nor to another host than it was given for.
  curl_easy_setopt(handle, CURLOPT_HEADEROPT, static_cast<long>(CURLHEADER_SEPARATE));
  // Asks for the file's bytes, not a compression of them.
  CurlList list(curl_slist_append(nullptr, "Accept-Encoding: identity"));
  const auto origin = OriginOf(url);
  if (!options.token.empty() && origin.ok() && *origin == options.token_origin) {
    const std::string field = "Authorization: Bearer " + options.token;
    curl_slist_append(list.get(), field.c_str());
  }
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, list.get());
  return list;
}

absl::Status CurlStatus(CURLcode code, const std::string& url) {
  const std::string text = absl::StrFormat("%s: %s", PrintableUrl(url), curl_easy_strerror(code));
  switch (code) {
    case CURLE_OK:
      return absl::OkStatus();
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return absl::FailedPreconditionError(
          text + " (the certificate is not trusted; SSL_CERT_FILE names further certificates)");
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
      return absl::InvalidArgumentError(text);
    default:
      return absl::UnavailableError(text);
  }
}

absl::StatusOr<HttpReply> Ask(const char* method, const std::string& url,
                              const HttpOptions& options, size_t max_body_bytes) {
  const CurlEasy handle = MakeEasy();
  HttpReply reply;
  const CurlList list = Prepare(handle.get(), url, options, reply.headers);
  Body body{.text = "", .max_bytes = max_body_bytes};
  if (std::string_view(method) == "HEAD") {
    curl_easy_setopt(handle.get(), CURLOPT_NOBODY, 1L);
  } else {
    curl_easy_setopt(handle.get(), CURLOPT_HTTPGET, 1L);
    curl_easy_setopt(handle.get(), CURLOPT_WRITEFUNCTION, TakeBody);
    curl_easy_setopt(handle.get(), CURLOPT_WRITEDATA, &body);
    curl_easy_setopt(handle.get(), CURLOPT_TIMEOUT, 120L);
  }
  if (options.keep_going != nullptr) {
    curl_easy_setopt(handle.get(), CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(handle.get(), CURLOPT_XFERINFOFUNCTION, AskWhetherToGoOn);
    curl_easy_setopt(handle.get(), CURLOPT_XFERINFODATA, &options);
  }
  const CURLcode code = curl_easy_perform(handle.get());
  if (code == CURLE_ABORTED_BY_CALLBACK) return absl::CancelledError("stopped");
  if (code == CURLE_WRITE_ERROR) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s answers with more than %d bytes", PrintableUrl(url), max_body_bytes));
  }
  TANDEM_RETURN_IF_ERROR(CurlStatus(code, url));
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &reply.status);
  curl_off_t wait = 0;
  if (curl_easy_getinfo(handle.get(), CURLINFO_RETRY_AFTER, &wait) == CURLE_OK && wait > 0) {
    reply.retry_after_seconds = wait;
  }
  reply.body = std::move(body.text);
  reply.url = url;
  return reply;
}

}  // namespace tandem::pull
