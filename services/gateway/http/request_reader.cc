#include "services/gateway/http/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/gateway/http/chunk_decoder.h"
#include "services/gateway/http/header_scanner.h"
#include "services/gateway/http/path_template.h"

namespace tandem::gateway {
namespace {

namespace http = boost::beast::http;

// Boost.Beast counts a field's bytes in 16 bits.
constexpr size_t kMaxHeaderBytes = 64 << 10;
// What a header says of its body's length is believed so far.
constexpr uint64_t kMaxReserveBytes = 1 << 20;

template <class View>
std::string Text(const View& view) {
  return std::string(view.data(), view.size());
}

// The client's fault as HTTP calls it.
std::pair<int, const char*> Explain(http::error error) {
  switch (error) {
    case http::error::bad_version:
      return {505, "HTTP/1.1 is spoken here"};
    case http::error::bad_transfer_encoding:
      return {400, "Transfer-Encoding: malformed, or beside Content-Length"};
    case http::error::bad_content_length:
      return {400, "Content-Length: malformed, or given twice"};
    default:
      return {400, "malformed request"};
  }
}

}  // namespace

// Of the request on its way.
struct HttpRequestReader::Progress {
  explicit Progress(const HttpReadLimits& limits)
      : scanner(HeaderScanner::Begin::kRequestLine, limits.max_header_bytes) {}

  HeaderScanner scanner;
  std::string header;                  // as sent
  std::optional<ChunkDecoder> chunks;  // of a chunked body
  uint64_t body_left = 0;              // bytes to come of a body that is not chunked
  std::string body;
};

HttpRequestReader::HttpRequestReader(const HttpReadLimits& limits) : limits_(limits) {
  TANDEM_CHECK(limits.max_header_bytes <= kMaxHeaderBytes);
}
HttpRequestReader::~HttpRequestReader() = default;

size_t HttpRequestReader::body_bytes() const {
  return progress_ == nullptr ? 0 : progress_->body.size();
}

size_t HttpRequestReader::Feed(std::string_view bytes) {
  size_t used = 0;
  if (state_ == State::kIdle) {
    // Empty lines before a request are passed over (RFC 9112, 2.2).
    while (used < bytes.size() && (bytes[used] == '\r' || bytes[used] == '\n')) ++used;
    if (used == bytes.size()) return used;
    progress_ = std::make_unique<Progress>(limits_);
    state_ = State::kHeader;
  }
  if (state_ == State::kHeader) return used + FeedHeader(bytes.substr(used));
  if (state_ == State::kBody) return FeedBody(bytes);
  return used;
}

size_t HttpRequestReader::FeedHeader(std::string_view bytes) {
  HeaderScanner& scanner = progress_->scanner;
  const size_t used = scanner.Feed(bytes);
  progress_->header.append(bytes.substr(0, used));
  switch (scanner.state()) {
    case HeaderScanner::State::kMore:
      break;
    case HeaderScanner::State::kWhole:
      ParseHeader();
      break;
    case HeaderScanner::State::kMalformed:
      Fail(400, "malformed request");
      break;
    case HeaderScanner::State::kTooLong:
      Fail(431, "the header is too long");
      break;
  }
  return used;
}

size_t HttpRequestReader::FeedBody(std::string_view bytes) {
  std::string& body = progress_->body;
  size_t used = 0;
  if (auto& chunks = progress_->chunks; chunks.has_value()) {
    used = chunks->Feed(bytes, body);
    if (chunks->failure().has_value()) {
      Fail(chunks->failure()->http_status, chunks->failure()->what);
    } else if (chunks->done()) {
      state_ = State::kDone;
    }
  } else {
    if (body.empty()) body.reserve(std::min<uint64_t>(progress_->body_left, kMaxReserveBytes));
    used = std::min<uint64_t>(bytes.size(), progress_->body_left);
    body.append(bytes.substr(0, used));
    progress_->body_left -= used;
    if (progress_->body_left == 0) state_ = State::kDone;
  }
  return used;
}

void HttpRequestReader::ParseHeader() {
  const std::string header = std::move(progress_->header);
  http::request_parser<http::empty_body> parser;
  parser.header_limit(static_cast<uint32_t>(header.size()));
  parser.skip(true);  // the body
  boost::system::error_code error;
  const size_t parsed = parser.put(boost::asio::buffer(header), error);
  if (error || parsed != header.size() || !parser.is_done()) {
    // The parser's own type for errors of its category.
    const auto [status, what] = Explain(static_cast<http::error>(error.value()));
    return Fail(status, what);
  }
  const auto& message = parser.get();
  head_ = {};
  head_.method = Text(message.method_string());
  for (const auto& field : message) {
    head_.headers.emplace_back(Text(field.name_string()), Text(field.value()));
  }
  http10_ = message.version() == 10;
  keep_alive_ = message.keep_alive();
  CheckFields();
  if (state_ == State::kFailed) return;
  if (!CheckTarget(Text(message.target()))) return Fail(400, "the target is no valid path");
  BeginBody(parser.content_length().value_or(0));
}

void HttpRequestReader::CheckFields() {
  expects_continue_ = false;
  if (head_.headers.size() > limits_.max_fields) {
    return Fail(431, absl::StrFormat("%d header fields, at most %d are taken", head_.headers.size(),
                                     limits_.max_fields));
  }
  size_t num_hosts = 0;
  size_t num_encodings = 0;
  for (const auto& [name, value] : head_.headers) {
    if (absl::EqualsIgnoreCase(name, "host")) ++num_hosts;
    if (absl::EqualsIgnoreCase(name, "transfer-encoding")) {
      if (http10_) return Fail(400, "Transfer-Encoding in HTTP/1.0");
      if (!absl::EqualsIgnoreCase(value, "chunked") || ++num_encodings > 1) {
        return Fail(501, "of transfer encodings 'chunked' alone is known");
      }
    }
    if (absl::EqualsIgnoreCase(name, "content-encoding") &&
        !absl::EqualsIgnoreCase(value, "identity")) {
      return Fail(415, "bodies are taken as they are, without a content encoding");
    }
    if (absl::EqualsIgnoreCase(name, "expect") && !http10_) {
      if (!absl::EqualsIgnoreCase(value, "100-continue")) {
        return Fail(417, "of expectations '100-continue' alone is known");
      }
      expects_continue_ = true;
    }
  }
  if (num_hosts > 1 || (num_hosts == 0 && !http10_)) {
    return Fail(400, "one Host field is needed");
  }
  if (num_encodings > 0) {
    progress_->chunks.emplace(ChunkLimits{.max_body_bytes = limits_.max_body_bytes,
                                          .max_trailer_bytes = limits_.max_header_bytes});
  }
}

void HttpRequestReader::BeginBody(uint64_t content_length) {
  if (content_length > limits_.max_body_bytes) return Fail(413, "the body is too long");
  progress_->body_left = content_length;
  const bool chunked = progress_->chunks.has_value();
  state_ = chunked || content_length > 0 ? State::kBody : State::kDone;
}

// Splits path and query; of absolute targets ("http://host/path") only the path counts.
bool HttpRequestReader::CheckTarget(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.substr(0, scheme.size()) != scheme) continue;
    const size_t slash = target.find('/', scheme.size());
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  if (target == "*" && head_.method == "OPTIONS") target = "/";
  target = target.substr(0, target.find('#'));
  const size_t question = target.find('?');
  head_.path = std::string(target.substr(0, question));
  if (question != std::string_view::npos) head_.query = std::string(target.substr(question + 1));
  return IsValidPath(head_.path);
}

HttpRequest HttpRequestReader::Take() {
  HttpRequest request = std::move(head_);
  request.body = std::move(progress_->body);
  head_ = {};
  progress_ = nullptr;
  state_ = State::kIdle;
  return request;
}

void HttpRequestReader::Discard() {
  progress_ = nullptr;
  state_ = State::kFailed;
}

void HttpRequestReader::Fail(int http_status, const std::string& message) {
  state_ = State::kFailed;
  const absl::StatusCode code = http_status == 501   ? absl::StatusCode::kUnimplemented
                                : http_status == 413 ? absl::StatusCode::kOutOfRange
                                                     : absl::StatusCode::kInvalidArgument;
  failure_ = {http_status, absl::Status(code, message), std::nullopt};
}

}  // namespace tandem::gateway
