// HTTP/1.1 over Boost.Asio, parsed by Boost.Beast: every public route on one port.
//
//   HttpRouter router;
//   router.Add({.method = "POST", .path_template = "/v1/completions", .handler = ...});
//   auto server = HttpServer::Start({.listen = "127.0.0.1:8080"}, std::move(router));
//   ...
//   (*server)->BeginDrain();               // idle connections close, answers say Connection: close
//   (*server)->Shutdown(absl::Seconds(2));  // stops listening, waits, cuts off the rest
//
// Connections are state machines on one or two threads.  They handle requests without a body; a
// pool of threads handles requests with one, because parsing JSON takes time.  Everything that a
// client can make the server hold is bounded: connections, header, body, all bodies, unsent bytes,
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/http/http_router.h"

namespace tandem::gateway {

class ApiKeys;
class HttpTraffic;

struct HttpServerOptions {
  std::string listen = "127.0.0.1:8080";  // HOST:PORT, host an address; port 0 takes a free one
  // PEM files; both or neither.
  std::string tls_certificate;
  std::string tls_key;
  // Origins that other sites' pages may call from: "https://chat.example", or "*".  Requests from
  // pages of other origins are refused (403); those of this server's own pages never are.
  std::vector<std::string> cors_origins;
  // Names of this server beside localhost and addresses.  On loopback without keys, requests for
  // other names are refused (403): they come from pages whose own name resolves to this address.
  std::vector<std::string> names;
  std::shared_ptr<ApiKeys> keys;   // null: no keys are required; shared with the metrics
  HttpTraffic* traffic = nullptr;  // may be null.  Borrowed; must outlive the server

  TraceSampler sampler;  // for requests whose clients do not decide

  uint32_t num_threads = 1;
  uint32_t max_connections = 4096;
  // Per key, else per client (PeerTenant), without health; 0: any number.
  uint32_t gets_per_second = 0;
  size_t max_header_bytes = 16 << 10;
  size_t max_body_bytes = 16 << 20;
  // Bodies of all requests together, until their handlers have read them; at least two of the
  // longest.
  size_t max_bodies_bytes = 128 << 20;
  // Of one connection's stream.  A larger piece counts with max_answers_bytes instead; the stream
  // is cut at the next piece if the client has not read it by then.
  size_t max_unsent_bytes = 1 << 20;
  // Of whole answers above 64 KiB that are not sent yet, and of large pieces of streams, all
  // connections together; a client has at most two thirds.  An answer makes room for others if the
  // client reads less than 64 KiB of it within answer_stall.
  size_t max_answers_bytes = 192 << 20;
  absl::Duration answer_stall = absl::Seconds(1);
  absl::Duration header_timeout = absl::Seconds(10);  // from a request's first byte
  absl::Duration body_timeout = absl::Seconds(60);    // from the header's end
  absl::Duration body_stall = absl::Seconds(1);       // a stalled body makes room for others
  uint32_t num_handlers = 4;                          // threads that read bodies, at least 2
  absl::Duration idle_timeout = absl::Seconds(75);    // between requests
  absl::Duration write_timeout = absl::Seconds(30);   // without a byte being taken
};

// INVALID_ARGUMENT: `listen` is not ADDRESS:PORT.
absl::Status CheckHttpAddress(const std::string& listen);

struct HttpServerCounts {
  uint64_t connections = 0;  // open now
  uint64_t requests = 0;     // being answered now
};

// Thread-safe.
class HttpServer {
 public:
  // Listens and starts to answer.  INVALID_ARGUMENT: a wrong address or TLS file;
  // ALREADY_EXISTS: the port is taken; PERMISSION_DENIED.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                           HttpRouter router);
  // Shuts down at once.
  ~HttpServer();

  // "http://127.0.0.1:8080"
  const std::string& url() const { return url_; }
  uint16_t port() const { return port_; }
  HttpServerCounts counts() const;

  // Reads the TLS files and the file of API keys again, for new connections and requests; open ones
  // go on.  A file that cannot be read changes nothing and is logged.  Returns whether all were
  // read.
  bool Reload();
  // Goes on answering, but closes each connection after its answer, and idle ones now.
  void BeginDrain();
  // Stops listening, waits up to `grace` for the requests being answered, cuts off the rest.
  // Handlers' callbacks have run when it returns.  Later calls have no effect.
  void Shutdown(absl::Duration grace);

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  std::string url_;
  uint16_t port_ = 0;
};

}  // namespace tandem::gateway
