// HTTP requests and responses, as handlers see them.
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
#include "services/common/trace/trace_context.h"

namespace tandem::gateway {

// Field names as sent; values without surrounding blanks.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// Upper bounds of what a request uses.
struct RequestCost {
  uint64_t sequences = 1;  // each prompt, choice and input counts
  uint64_t at_once = 1;    // sequences in the engine at once
  uint64_t tokens = 0;     // of prompts and of answers of maximum length
};

// The holder of a request's API key.  Thread-safe.
class HttpClient {
 public:
  virtual ~HttpClient() = default;
  // Its name in the key file, for logs.
  virtual const std::string& name() const = 0;
  // The tenant whose share of the device its requests use, and the weight of that share.
  virtual const std::string& tenant() const = 0;
  virtual uint32_t weight() const { return 1; }
  // The lowest priority number that its requests may have.
  virtual int32_t least_priority() const { return 0; }
  // Whose cached prefixes its requests may find; empty: those of all clients without a scope.
  virtual std::string cache_scope() const { return ""; }
  // Whether it may see others' traces and usage.
  virtual bool sees_all() const { return true; }
  // Reserves, before a request runs, the most that it may use; one sequence was taken when its head
  // arrived.  RESOURCE_EXHAUSTED, with nothing taken, names the limit, the requested and the
  // allowed amount, with RetryInfo.
  virtual absl::Status Reserve(const RequestCost& /*cost*/) { return absl::OkStatus(); }
  // Gives places and tokens back.  ChargeTokens charges the used tokens.
  virtual void Release(const RequestCost& /*cost*/) {}
  // Tokens that may be reserved now; nullopt: any number.
  virtual std::optional<uint64_t> tokens_left() { return std::nullopt; }
  // Sequences that may run at once; nullopt: any number.
  virtual std::optional<uint64_t> max_at_once() { return std::nullopt; }
  // Counts tokens, prompt and answer together, against the key's limit.
  virtual void ChargeTokens(uint64_t prompt_tokens, uint64_t completion_tokens) = 0;
};

// A request's reservation.  Gives the unused part back when destroyed.  Thread-compatible.
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

  // Charges used tokens, and ends their reservation.
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
  RequestCost cost_;                          // still reserved
};

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // as sent, percent-encoded, without the query
  std::string query;   // as sent, without '?'
  HttpHeaders headers;
  std::string body;  // whole, transfer encoding undone
  // Variables of the route's path template, percent-decoded: {"model", "gemma-3-1b"}.
  std::vector<std::pair<std::string, std::string>> variables;
  // The client's X-Request-Id if it is a plain token, else generated.  Sent back with the answer.
  std::string id;
  // The trace it belongs to, and its own span there.  Sent back as traceparent.
  RequestTrace trace;
  // Never null.  Without API keys: one anonymous client without limits.
  std::shared_ptr<HttpClient> client;  // shared with the server's table of keys

  // The first field of that name; letter case is ignored.
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

  // Sends a whole answer.  Also possible after BeginStream until the first byte leaves: a failure
  // before the first token is a plain response.  False: too late (report it in the stream and End
  // it), or the client has gone.
  virtual bool Send(HttpResponse response) = 0;
  // Sends `failure` in the error format of the request's path (HttpRouter::SetErrorFormat).
  virtual bool SendFailure(const HttpFailure& failure) = 0;
  bool SendStatus(const absl::Status& status) { return SendFailure(FailureOf(status)); }

  // The head goes out with the first Write, keep-alive or End, whichever is first.
  virtual void BeginStream(HttpStreamStart start) = 0;
  // Queues bytes for the client.  False: the client has gone, or is cut off because it already had
  // more than HttpServerOptions::max_unsent_bytes unread, or because there is no memory for a piece
  // above that limit.  Write only on on_drained, so that a slow reader slows its own stream alone.
  virtual bool Write(std::string_view bytes) = 0;
  // The stream is complete.
  virtual void End() = 0;
  // Cuts the connection: the client sees an incomplete stream.
  virtual void Abort() = 0;

  // Set these before the first Write.  `on_drained` is called each time that the kernel has all
  // written bytes.  `on_gone` is called at most once, when the client has gone or is cut off, or at
  // once if it already has.  Neither starts after the answer is complete.  Both run on a thread of
  // the server with no lock held, and are destroyed when the answer is complete or the client has
  // gone, so they may hold references to this.
  virtual void SetCallbacks(std::function<void()> on_drained, std::function<void()> on_gone) = 0;
  virtual bool gone() const = 0;
};

// Called on a thread of the server: must not block.  Completes `responder` then or later, on any
// thread.
using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpResponder>)>;

}  // namespace tandem::gateway
