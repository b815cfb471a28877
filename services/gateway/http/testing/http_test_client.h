// A blocking HTTP client that can also misbehave: raw bytes out, raw bytes in.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "services/common/base/unique_fd.h"

namespace tandem::gateway::testing {

struct HttpTestResponse {
  int status = 0;                              // 0: the connection ended instead
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  bool complete = false;                       // the body's end was seen

  std::string Header(const std::string& name) const;
};

// Single-thread.
class HttpTestClient {
 public:
  // Connects to 127.0.0.1:`port`; aborts if that fails.  Reads give up after `patience`.
  explicit HttpTestClient(uint16_t port, absl::Duration patience = absl::Seconds(20));

  void Send(std::string_view bytes);
  // False when the server has closed its side.
  bool TrySend(std::string_view bytes);
  // Sends a request with Host, Content-Length and `headers` ("Name: value\r\n" each).
  void Request(std::string_view method, std::string_view target, std::string_view body = "",
               std::string_view headers = "");
  // Reads one response.  `head_only`: the request was HEAD.
  HttpTestResponse Read(bool head_only = false);
  // Reads one response's head, then chunk after chunk; empty at the stream's end or cut.
  HttpTestResponse ReadHead();
  std::optional<std::string> ReadChunk();
  // Waits for the server to close; the bytes that came before.
  std::string ReadUntilClosed();
  HttpTestResponse Call(std::string_view method, std::string_view target,
                        std::string_view body = "", std::string_view headers = "");
  void ShutdownWrite();
  void Close() { fd_.Reset(); }
  int fd() const { return fd_.get(); }

 private:
  bool Fill();  // false at the end
  std::optional<std::string> Line();
  UniqueFd fd_;
  std::string in_;
};

}  // namespace tandem::gateway::testing
