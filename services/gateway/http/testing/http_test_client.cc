#include "services/gateway/http/testing/http_test_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "services/common/base/check.h"

namespace tandem::gateway::testing {

std::string HttpTestResponse::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

HttpTestClient::HttpTestClient(uint16_t port, absl::Duration patience)
    : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  TANDEM_CHECK(fd_.valid());
  const timeval limit = absl::ToTimeval(patience);
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  const int on = 1;
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  TANDEM_CHECK(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
               0);
}

bool HttpTestClient::TrySend(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void HttpTestClient::Send(std::string_view bytes) { TANDEM_CHECK(TrySend(bytes)); }

void HttpTestClient::Request(std::string_view method, std::string_view target,
                             std::string_view body, std::string_view headers) {
  std::string bytes = absl::StrFormat("%s %s HTTP/1.1\r\nHost: localhost\r\n", std::string(method),
                                      std::string(target));
  if (!body.empty()) bytes += absl::StrFormat("Content-Length: %d\r\n", body.size());
  TrySend(bytes.append(headers).append("\r\n").append(body));
}

bool HttpTestClient::Fill() {
  char bytes[16384];
  ssize_t got;
  // As after a stop of the process, where there is a timeout.
  while ((got = ::recv(fd_.get(), bytes, sizeof(bytes), 0)) < 0 && errno == EINTR) {
  }
  if (got <= 0) return false;
  in_.append(bytes, static_cast<size_t>(got));
  return true;
}

std::optional<std::string> HttpTestClient::Line() {
  size_t end = in_.find("\r\n");
  while (end == std::string::npos) {
    if (!Fill()) return std::nullopt;
    end = in_.find("\r\n");
  }
  std::string line = in_.substr(0, end);
  in_.erase(0, end + 2);
  return line;
}

HttpTestResponse HttpTestClient::ReadHead() {
  HttpTestResponse response;
  auto line = Line();
  if (!line.has_value() || line->size() < 12) return response;
  response.status = std::atoi(line->c_str() + 9);
  while ((line = Line()).has_value() && !line->empty()) {
    const size_t colon = line->find(": ");
    TANDEM_CHECK(colon != std::string::npos);
    response.headers[absl::AsciiStrToLower(line->substr(0, colon))] = line->substr(colon + 2);
  }
  return response;
}

std::optional<std::string> HttpTestClient::ReadChunk() {
  const auto size_line = Line();
  if (!size_line.has_value()) return std::nullopt;
  const size_t size = std::strtoul(size_line->c_str(), nullptr, 16);
  while (in_.size() < size + 2) {
    if (!Fill()) return std::nullopt;
  }
  std::string chunk = in_.substr(0, size);
  in_.erase(0, size + 2);
  return chunk;
}

HttpTestResponse HttpTestClient::Read(bool head_only) {
  HttpTestResponse response = ReadHead();
  if (response.status == 0) return response;
  if (head_only || response.status == 204 || response.status == 100) {
    response.complete = true;
  } else if (response.Header("transfer-encoding") == "chunked") {
    while (const auto chunk = ReadChunk()) {
      response.body += *chunk;
      if (chunk->empty()) {
        response.complete = true;
        break;
      }
    }
  } else if (!response.Header("content-length").empty()) {
    const size_t size = std::strtoul(response.Header("content-length").c_str(), nullptr, 10);
    while (in_.size() < size && Fill()) {
    }
    response.complete = in_.size() >= size;
    response.body = in_.substr(0, size);
    in_.erase(0, size);
  } else {
    response.body = ReadUntilClosed();
    response.complete = true;
  }
  return response;
}

std::string HttpTestClient::ReadUntilClosed() {
  while (Fill()) {
  }
  return std::exchange(in_, {});
}

HttpTestResponse HttpTestClient::Call(std::string_view method, std::string_view target,
                                      std::string_view body, std::string_view headers) {
  Request(method, target, body, headers);
  return Read(method == "HEAD");
}

void HttpTestClient::ShutdownWrite() { ::shutdown(fd_.get(), SHUT_WR); }

}  // namespace tandem::gateway::testing
