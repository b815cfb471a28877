// One gRPC call made for an HTTP request.
//
//   read -> JSON -> Write -> on_drained -> read ...
//
// The next message is read when the last is with the kernel, so that a slow client holds back its
// own call, and the engine merges what it has to say meanwhile.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "services/common/base/mutex.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/rest/rest_binding.h"

namespace tandem::gateway {

// Thread-safe.  Lives until gRPC is done with it.
class RestCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // `stub`, `binding`: Borrowed; must outlive the call.
  // Returns why no call was made, which is answered already.
  static absl::Status Start(grpc::GenericStub& stub, const RestBinding& binding,
                            HttpRequest request, std::shared_ptr<HttpResponder> responder);

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  RestCall(const RestBinding& binding, HttpRequest request,
           std::shared_ptr<HttpResponder> responder);
  void Begin(grpc::GenericStub& stub, const google::protobuf::Message& request);
  absl::Status TakeMessage();
  void ReadNext();
  void OnGone();
  void EndStream(const absl::Status& status);

  const RestBinding& binding_;
  const std::shared_ptr<HttpResponder> responder_;  // shared with the server
  const std::shared_ptr<HttpClient> client_;        // shared with the server's table of keys
  const std::unique_ptr<google::protobuf::Message> message_;  // of the reader
  const bool streaming_;
  const bool events_;
  grpc::ClientContext context_;
  const std::string method_path_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  std::optional<std::string> body_;  // a unary call's answer
  absl::Status broken_;              // why the answer cannot be written

  Mutex mutex_;
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<RestCall> self_;  // gRPC's hold, until OnDone
};

}  // namespace tandem::gateway
