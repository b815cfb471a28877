// What HTTP handlers are given and what they give back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/trace/trace_context.h"

namespace tandem::gateway {

// Field names as sent; values without surrounding blanks.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// What a request may use at most.
struct RequestCost {
  uint64_t sequences = 1;  // each prompt, choice and input counts
  uint64_t at_once = 1;    // of them with the engine at a time
  uint64_t tokens = 0;     // prompts, and the most that their answers may have
};

// The holder of the API key a request came with.  Thread-safe.
class HttpClient {
 public:
  virtual ~HttpClient() = default;
  // As the key file calls it, for logs.
  virtual const std::string& name() const = 0;
  // Whose share of the device its requests use, and the weight of that share.
  virtual const std::string& tenant() const = 0;
  virtual uint32_t weight() const { return 1; }
  // Whether it may see others' traces, and what other keys have used.
  virtual bool sees_all() const { return true; }
  // Takes from the key's limits what a request may use, before it runs; one sequence was taken when
  // its head arrived.  RESOURCE_EXHAUSTED, with nothing taken, names the limit, what was asked and
  // what is allowed, with RetryInfo.
  virtual absl::Status Reserve(const RequestCost& /*cost*/) { return absl::OkStatus(); }
  // Gives back the places, and the tokens: what was used is charged by ChargeTokens.
  virtual void Release(const RequestCost& /*cost*/) {}
  // Tokens that may be reserved now; nullopt: any number.
  virtual std::optional<uint64_t> tokens_left() { return std::nullopt; }
  // Sequences that may run at a time; nullopt: any number.
  virtual std::optional<uint64_t> max_at_once() { return std::nullopt; }
  // Counts tokens, prompt and answer together, against the key's limit.
  virtual void ChargeTokens(uint64_t prompt_tokens, uint64_t completion_tokens) = 0;
};

// What was reserved for a request; what is left of it is given back when this is destroyed.
// Thread-compatible.
class ClientReservation {
 public:
  // RESOURCE_EXHAUSTED as HttpClient::Reserve.
  static absl::StatusOr<std::unique_ptr<ClientReservation>> Make(std::shared_ptr<HttpClient> client,
                                                                 const RequestCost& cost) {
    const absl::Status status = client->Reserve(cost);
    if (!status.ok()) return status;
    return std::unique_ptr<ClientReservation>(new ClientReservation(std::move(client), cost));
  }
  ~ClientReservation() { client_->Release(cost_); }

  // Charges tokens that were used, which are no longer reserved.
  void Charge(uint64_t prompt_tokens, uint64_t completion_tokens) {
    client_->ChargeTokens(prompt_tokens, completion_tokens);
    const uint64_t settled = std::min(cost_.tokens, prompt_tokens + completion_tokens);
    client_->Release({.tokens = settled});
    cost_.tokens -= settled;
  }

 private:
  ClientReservation(std::shared_ptr<HttpClient> client, const RequestCost& cost)
      : client_(std::move(client)), cost_(cost) {}
  const std::shared_ptr<HttpClient> client_;  // shared with the request
  RequestCost cost_;                          // what is still reserved
};

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // as sent, percent-encoded, without the query
  std::string query;   // as sent, without '?'
  HttpHeaders headers;
  std::string body;  // whole, transfer encoding undone
  // Variables of the route's path template, percent-decoded: {"model", "gemma-3-1b"}.
  std::vector<std::pair<std::string, std::string>> variables;
  // The client's X-Request-Id where it is a plain token, else made up.  Sent back with the answer.
  std::string id;
  // The trace it belongs to, and its own span there.  Sent back as traceparent.
  RequestTrace trace;
  // Never null; without API keys one client that is nobody and has no limits.
  std::shared_ptr<HttpClient> client;  // shared with the server's table of keys

  // The first field of that name, letter case aside.
  std::optional<std::string_view> Header(std::string_view name) const;
  // Empty if there is none.
  std::string_view Variable(std::string_view name) const;
  // Whether Accept names `media_type` ("text/event-stream") outright, with a weight above 0.
  bool Accepts(std::string_view media_type) const;
  // Whether Accept-Encoding names `coding` ("gzip") outright, with a weight above 0.
  bool AcceptsEncoding(std::string_view coding) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  // Beside Content-Type, Content-Length, Date, Connection, X-Request-Id and CORS, which the server
  // sets.  Fields with control characters are left out.
  HttpHeaders headers;
};

// How a stream begins.
struct HttpStreamStart {
  int status = 200;
  std::string content_type = "text/event-stream";
  HttpHeaders headers;
  // Sent after each `keep_alive_interval` in which nothing was, e.g. ": keep-alive\n\n"; empty:
  // never.
  std::string keep_alive;
  absl::Duration keep_alive_interval = absl::Seconds(10);
};

// Why the server, or a handler, refuses a request.
struct HttpFailure {
  int http_status = 500;
  absl::Status status;  // the same in gRPC's terms
  std::optional<int64_t> retry_after_seconds;
};

// A failure by its gRPC code: 400, 401, 403, 404, 409, 429, 499, 500, 501, 503 or 504, with
// Retry-After from the status' google.rpc.RetryInfo, or 1 s for 429 and 503.
HttpFailure FailureOf(const absl::Status& status);
int HttpStatusOf(absl::StatusCode code);
std::string_view HttpReason(int http_status);

// google.rpc.Status as JSON.
HttpResponse StatusResponse(const HttpFailure& failure);

// Turns a failure into the answer that an API's clients expect.
using HttpErrorFormat = std::function<HttpResponse(const HttpFailure&)>;

// One request's answer: either one Send, or BeginStream, Writes and End.  Thread-safe; none of it
// blocks.  If all references go before it is complete the client gets 500, or a cut stream.
class HttpResponder {
 public:
  virtual ~HttpResponder() = default;

  // The whole answer.  Also after BeginStream, as long as none of the stream is on its way: so a
  // failure before the first token is a plain response.  False: too late (say it in the stream, and
  // End it), or the client has gone.
  virtual bool Send(HttpResponse response) = 0;
  // Sends `failure` in the error format of the request's path (HttpRouter::SetErrorFormat).
  virtual bool SendFailure(const HttpFailure& failure) = 0;
  bool SendStatus(const absl::Status& status) { return SendFailure(FailureOf(status)); }

  // The head goes out with the first Write, keep-alive or End, whichever is first.
  virtual void BeginStream(HttpStreamStart start) = 0;
  // Queues bytes for the client.  False: the client has gone, or has left more than
  // HttpServerOptions::max_unsent_bytes unread and is cut off.  Write when on_drained says so and a
  // slow reader slows its own stream alone.
  virtual bool Write(std::string_view bytes) = 0;
  // The stream is complete.
  virtual void End() = 0;
  // Cuts the connection, so that the client sees that the stream is not complete.
  virtual void Abort() = 0;

  // To be set before the first Write.  `on_drained` is called when all that has been written is
  // with the kernel, once for each such time; `on_gone` at most once, as soon as the client has
  // gone or is cut off, and at once if it has already.  Neither begins after the answer is
  // complete, both run on a thread of the server with no lock held, and both are destroyed when the
  // answer is complete or the client has gone: they may hold references to this.
  virtual void SetCallbacks(std::function<void()> on_drained, std::function<void()> on_gone) = 0;
  virtual bool gone() const = 0;
};

// Called on a thread of the server: must not block.  Completes `responder` then or later, on any
// thread.
using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpResponder>)>;

}  // namespace tandem::gateway
