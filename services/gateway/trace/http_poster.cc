#include "services/gateway/trace/http_poster.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/http/chunk_decoder.h"

namespace tandem::gateway {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;

constexpr size_t kMaxAnswerBytes = 1 << 20;

std::optional<absl::Duration> ParseRetryAfter(const std::string& text) {
  uint32_t seconds = 0;
  if (absl::SimpleAtoi(text, &seconds)) return absl::Seconds(seconds);
  absl::Time date;
  std::string error;
  if (!absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", text, &date, &error)) return std::nullopt;
  return std::max(date - absl::Now(), absl::ZeroDuration());
}

}  // namespace

absl::StatusOr<HttpUrl> ParseHttpUrl(const std::string& url) {
  const auto wrong = [&url](const char* why) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' is not http://HOST:PORT/PATH: %s", url, why));
  };
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://")) {
    return wrong("https is not spoken here; a collector on this host can send on over TLS");
  }
  if (!url.starts_with(kScheme)) return wrong("another scheme");
  for (const char c : url) {
    if (c <= ' ' || c > '~' || c == '@' || c == '#')
      return wrong("a character that cannot be there");
  }
  const size_t slash = url.find('/', kScheme.size());
  std::string host =
      url.substr(kScheme.size(), slash == std::string::npos ? slash : slash - kScheme.size());
  HttpUrl parsed{.port = "80", .target = slash == std::string::npos ? "/" : url.substr(slash)};
  const size_t bracket = host.rfind(']');
  const size_t colon = host.rfind(':');
  if (colon != std::string::npos && (bracket == std::string::npos || colon > bracket)) {
    parsed.port = host.substr(colon + 1);
    host.resize(colon);
    uint32_t number = 0;
    if (!absl::SimpleAtoi(parsed.port, &number) || number == 0 || number > 65535) {
      return wrong("the port");
    }
  }
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty()) return wrong("no host");
  parsed.host = std::move(host);
  return parsed;
}

// Asynchronous operations run to their end one after another, so that each has a deadline.
class HttpPoster::Connection {
 public:
  bool open() const { return stream_.has_value(); }
  bool cancelled() const { return cancelled_; }

  void Cancel() {
    cancelled_ = true;
    asio::post(io_, [this] {
      resolver_.cancel();
      if (stream_.has_value()) stream_->cancel();
    });
  }

  void Close() { stream_.reset(); }

  absl::Status Connect(const HttpUrl& url, absl::Time deadline) {
    tcp::resolver::results_type found;
    boost::system::error_code error;
    asio::steady_timer timer(io_, Until(deadline));
    timer.async_wait([this](const boost::system::error_code& cancelled) {
      if (!cancelled) resolver_.cancel();
    });
    resolver_.async_resolve(url.host, url.port,
                            [&](const boost::system::error_code& e, auto results) {
                              error = e;
                              found = std::move(results);
                              timer.cancel();
                            });
    Run();
    if (error || cancelled_) return Failed(url, error);
    stream_.emplace(io_);
    stream_->expires_after(Until(deadline));
    stream_->async_connect(
        found, [&](const boost::system::error_code& e, const tcp::endpoint&) { error = e; });
    Run();
    return error ? Failed(url, error) : absl::OkStatus();
  }

  absl::StatusOr<PostResult> Exchange(const HttpUrl& url, const std::string& content_type,
                                      const std::string& body, absl::Time deadline) {
    http::request<http::span_body<const char>> request(http::verb::post, url.target, 11);
    const bool v6 = url.host.find(':') != std::string::npos;
    request.set(http::field::host, (v6 ? "[" + url.host + "]" : url.host) + ":" + url.port);
    request.set(http::field::user_agent, "tandem");
    request.set(http::field::content_type, content_type);
    request.body() = {body.data(), body.size()};
    request.prepare_payload();
    boost::system::error_code error;
    stream_->expires_after(Until(deadline));
    http::async_write(*stream_, request,
                      [&](const boost::system::error_code& e, size_t) { error = e; });
    Run();
    if (error || cancelled_) return Failed(url, error);
    boost::beast::flat_buffer buffer;
    http::response_parser<http::string_body> parser;
    parser.body_limit(kMaxAnswerBytes);
    stream_->expires_after(Until(deadline));
    http::async_read_header(*stream_, buffer, parser,
                            [&](const boost::system::error_code& e, size_t) { error = e; });
    Run();
    if (error) return Failed(url, error);
    PostResult result{.status = static_cast<int>(parser.get().result_int())};
    if (parser.chunked()) {
      error = ReadChunks(buffer, result.body);
    } else if (!parser.is_done()) {
      http::async_read(*stream_, buffer, parser,
                       [&](const boost::system::error_code& e, size_t) { error = e; });
      Run();
      result.body = std::move(parser.get().body());
    }
    if (error) return Failed(url, error);
    const auto& response = parser.get();
    if (const auto field = response.find(http::field::retry_after); field != response.end()) {
      result.retry_after = ParseRetryAfter(std::string(field->value()));
    }
    if (!response.keep_alive()) Close();
    return result;
  }

 private:
  // Boost.Beast's parser aborts on some cuts within a chunked body's trailers.
  boost::system::error_code ReadChunks(boost::beast::flat_buffer& buffer, std::string& body) {
    ChunkDecoder decoder({.max_body_bytes = kMaxAnswerBytes});
    boost::system::error_code error;
    while (true) {
      const auto bytes = buffer.data();
      buffer.consume(decoder.Feed({static_cast<const char*>(bytes.data()), bytes.size()}, body));
      if (decoder.done()) return error;
      if (decoder.failure().has_value()) return http::make_error_code(http::error::bad_chunk);
      stream_->async_read_some(buffer.prepare(4096),
                               [&](const boost::system::error_code& e, size_t num_bytes) {
                                 error = e;
                                 buffer.commit(num_bytes);
                               });
      Run();
      if (error) return error;
    }
  }

  static std::chrono::nanoseconds Until(absl::Time deadline) {
    return absl::ToChronoNanoseconds(std::max(deadline - absl::Now(), absl::ZeroDuration()));
  }

  void Run() {
    io_.restart();
    io_.run();
  }

  absl::Status Failed(const HttpUrl& url, const boost::system::error_code& error) {
    Close();
    if (cancelled_) return absl::CancelledError("cancelled");
    return absl::UnavailableError(
        absl::StrFormat("%s:%s: %s", url.host, url.port, error.message()));
  }

  asio::io_context io_;
  tcp::resolver resolver_{io_};
  std::optional<boost::beast::tcp_stream> stream_;
  std::atomic<bool> cancelled_ = false;
};

HttpPoster::HttpPoster(HttpUrl url)
    : url_(std::move(url)), connection_(std::make_unique<Connection>()) {}
HttpPoster::~HttpPoster() = default;

void HttpPoster::Cancel() { connection_->Cancel(); }

absl::StatusOr<PostResult> HttpPoster::Post(const std::string& content_type,
                                            const std::string& body, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  const bool reused = connection_->open();
  auto result = PostOnce(content_type, body, deadline);
  // The other end may close a connection that waits whenever it likes.
  if (!result.ok() && reused && absl::IsUnavailable(result.status()) && absl::Now() < deadline) {
    return PostOnce(content_type, body, deadline);
  }
  return result;
}

absl::StatusOr<PostResult> HttpPoster::PostOnce(const std::string& content_type,
                                                const std::string& body, absl::Time deadline) {
  if (connection_->cancelled()) return absl::CancelledError("cancelled");
  if (!connection_->open()) TANDEM_RETURN_IF_ERROR(connection_->Connect(url_, deadline));
  return connection_->Exchange(url_, content_type, body, deadline);
}

}  // namespace tandem::gateway
