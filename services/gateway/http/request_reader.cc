#include "services/gateway/http/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "services/gateway/http/path_template.h"

namespace tandem::gateway {
namespace {

namespace http = boost::beast::http;

template <class View>
std::string Text(const View& view) {
  return std::string(view.data(), view.size());
}

// The client's fault as HTTP calls it.
std::pair<int, const char*> Explain(http::error error) {
  switch (error) {
    case http::error::header_limit:
      return {431, "the header is too long"};
    case http::error::body_limit:
    case http::error::buffer_overflow:
      return {413, "the body is too long"};
    case http::error::bad_version:
      return {505, "HTTP/1.1 is spoken here"};
    case http::error::bad_transfer_encoding:
      return {400, "Transfer-Encoding: malformed, or beside Content-Length"};
    case http::error::bad_content_length:
      return {400, "Content-Length: malformed, or given twice"};
    case http::error::bad_chunk:
    case http::error::bad_chunk_extension:
      return {400, "malformed chunk"};
    default:
      return {400, "malformed request"};
  }
}

}  // namespace

struct HttpRequestReader::Parser {
  http::request_parser<http::string_body> beast;
};

HttpRequestReader::HttpRequestReader(const HttpReadLimits& limits) : limits_(limits) {}
HttpRequestReader::~HttpRequestReader() = default;

size_t HttpRequestReader::body_bytes() const {
  return parser_ == nullptr ? 0 : parser_->beast.get().body().size();
}

size_t HttpRequestReader::Feed(std::string_view bytes) {
  size_t used = 0;
  // Empty lines before a request are passed over (RFC 9112, 2.2).
  while (state_ == State::kIdle && used < bytes.size()) {
    if (bytes[used] == '\r' || bytes[used] == '\n') {
      ++used;
      continue;
    }
    parser_ = std::make_unique<Parser>();
    parser_->beast.header_limit(static_cast<uint32_t>(limits_.max_header_bytes));
    parser_->beast.body_limit(limits_.max_body_bytes);
    state_ = State::kHeader;
  }
  while ((state_ == State::kHeader || state_ == State::kBody) && used < bytes.size()) {
    boost::system::error_code error;
    used += parser_->beast.put(boost::asio::const_buffer(bytes.data() + used, bytes.size() - used),
                               error);
    if (error == http::error::need_more) {
      // The header is left in place until it is whole, and so is each chunk's size line.
      if (bytes.size() - used >= limits_.max_header_bytes) {
        Fail(state_ == State::kHeader ? 431 : 400, state_ == State::kHeader
                                                       ? "the header is too long"
                                                       : "a chunk's size line is too long");
      }
      return used;
    }
    if (error) {
      // The parser's own type for errors of its category.
      const auto [status, what] = Explain(static_cast<http::error>(error.value()));
      Fail(status, what);
      return used;
    }
    if (state_ == State::kHeader && parser_->beast.is_header_done()) {
      CheckHeader();
      if (state_ == State::kFailed) return used;
      state_ = parser_->beast.is_done() ? State::kDone : State::kBody;
      return used;
    }
    if (parser_->beast.is_done()) state_ = State::kDone;
  }
  return used;
}

void HttpRequestReader::CheckHeader() {
  const auto& message = parser_->beast.get();
  head_ = {};
  head_.method = Text(message.method_string());
  http10_ = message.version() == 10;
  keep_alive_ = message.keep_alive();
  expects_continue_ = false;
  size_t num_hosts = 0;
  for (const auto& field : message) {
    head_.headers.emplace_back(Text(field.name_string()), Text(field.value()));
    if (field.name() == http::field::host) ++num_hosts;
  }
  if (head_.headers.size() > limits_.max_fields) {
    return Fail(431, absl::StrFormat("%d header fields, at most %d are taken", head_.headers.size(),
                                     limits_.max_fields));
  }
  if (num_hosts > 1 || (num_hosts == 0 && !http10_)) {
    return Fail(400, "one Host field is needed");
  }
  size_t num_encodings = 0;
  for (const auto& [name, value] : head_.headers) {
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
  if (!CheckTarget(Text(message.target()))) Fail(400, "the target is no valid path");
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
  request.body = std::move(parser_->beast.get().body());
  head_ = {};
  parser_ = nullptr;
  state_ = State::kIdle;
  return request;
}

void HttpRequestReader::Fail(int http_status, std::string message) {
  state_ = State::kFailed;
  const absl::StatusCode code = http_status == 501   ? absl::StatusCode::kUnimplemented
                                : http_status == 413 ? absl::StatusCode::kOutOfRange
                                                     : absl::StatusCode::kInvalidArgument;
  failure_ = {http_status, absl::Status(code, message), std::nullopt};
}

}  // namespace tandem::gateway
