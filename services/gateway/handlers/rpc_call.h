// One call of the public API, between the handler that answers it and the transport that brought
// it.
//
//   gRPC (grpc_call.h)       --\                         /--  a gRPC message
//                               RpcCall  ->  RpcHandler
//   REST (rest/rest_call.h)  --/                         \--  JSON
//
// A handler reads the request as a message and fills the response as a message.  It does not know
// the transport.  A unary call is a stream of one message, which Finish sends.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/common/trace/trace_context.h"
#include "services/gateway/engine/request_run.h"
#include "services/gateway/http/http_message.h"

namespace tandem::gateway {

struct RpcCaller {
  Api api = Api::kGrpc;
  // Never null.  Its tenant, and the limits of its API key if it has one.
  std::shared_ptr<HttpClient> client;  // shared with the server's table of keys
  RequestTrace trace;
  absl::Time deadline = absl::InfiniteFuture();
};

// Thread-safe, except request and response.  No method blocks.
class RpcCall {
 public:
  explicit RpcCall(RpcCaller caller) : caller_(std::move(caller)) {}
  virtual ~RpcCall() = default;
  RpcCall(const RpcCall&) = delete;
  RpcCall& operator=(const RpcCall&) = delete;

  const RpcCaller& caller() const { return caller_; }
  // REQUIRES the message type of the method.
  template <class Request>
  const Request& request() const {
    return dynamic_cast<const Request&>(request_message());
  }
  // The next message, empty at first.  From Write until on_written it is the transport's.
  template <class Response>
  Response& response() {
    return dynamic_cast<Response&>(response_message());
  }

  // The handler no longer reads request(): the transport may free it.
  virtual void ReleaseRequest() {}

  // Sends the client its request's id.  REQUIRES: before the first Write or Finish.
  virtual void NameRequest(const std::string& /*id*/) {}
  // `on_written` is called once for each Write that returned true; `ok` is false if nothing more
  // reaches the client.  `on_gone` is called at most once, when the client has gone.  Both are
  // destroyed at the end of the call, so they may hold references to this.  REQUIRES: called before
  // the handler returns.
  virtual void SetCallbacks(std::function<void(bool ok)> on_written,
                            std::function<void()> on_gone) = 0;
  // Whether the client has gone.
  virtual bool gone() const = 0;

  // Sends response() as a message of a stream; false: nothing more reaches the client.  REQUIRES:
  // the last Write is done.
  virtual bool Write() = 0;
  // Ends the call.  OK sends response() as the last message; an error is sent in its place.
  // REQUIRES: the last Write is done; called once.
  virtual void Finish(absl::Status status) = 0;

 protected:
  virtual const google::protobuf::Message& request_message() const = 0;
  virtual google::protobuf::Message& response_message() = 0;

 private:
  const RpcCaller caller_;
};

// Answers a call, before it returns or later, on any thread.
using RpcHandler = std::function<void(std::shared_ptr<RpcCall> call)>;

struct RpcMethod {
  RpcHandler answer;
  // Counts a request that cannot be read as a message; null: such requests are not counted.
  std::function<void(Api api, const absl::Status& status)> refused;
};

// By full name: "tandem.v1.Generation.Chat".
using RpcMethods = std::map<std::string, RpcMethod>;

}  // namespace tandem::gateway
