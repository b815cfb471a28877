// gRPC calls made for HTTP requests.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "services/common/base/mutex.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/rest/rest_binding.h"

namespace tandem::gateway {

class RestCall;

// The calls through one channel.  Thread-safe.
//
// gRPC ends a call on a thread of its own, which must not be the last to hold the channel: that
// would wait for itself.  So this outlives its calls.
class RestCalls {
 public:
  explicit RestCalls(std::shared_ptr<grpc::Channel> channel) : stub_(std::move(channel)) {}
  // Cancels calls that are under way and waits for their end.  REQUIRES a thread that is not
  // gRPC's.
  ~RestCalls();

  // Returns why no call was made, which is answered already.
  absl::Status Start(std::shared_ptr<const RestBinding> binding, HttpRequest request,
                     std::shared_ptr<HttpResponder> responder);

 private:
  friend class RestCall;
  // The last that a call does with this.
  void Remove(const std::shared_ptr<RestCall>& call);

  grpc::GenericStub stub_;
  Mutex mutex_;
  CondVar removed_;
  std::set<std::shared_ptr<RestCall>> calls_ ABSL_GUARDED_BY(mutex_);  // with the responders
};

}  // namespace tandem::gateway
