// Admits requests to the engine and queues them for its thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/gateway/engine/request_run.h"
#include "services/gateway/engine/token_stream.h"
#include "services/gateway/scheduler/queue_places.h"

namespace tandem::gateway {

// A request on its way to the engine's thread.
struct SubmittedRequest {
  EngineRequest request;
  std::shared_ptr<TokenStream> stream;
  absl::Time submitted;
};

// A request holds a place from Submit to Ended.  Thread-safe.
class Admission {
 public:
  // `capacity`: places that one tenant alone can hold (QueuePlaces).
  explicit Admission(uint64_t capacity) : places_(capacity) {}

  // RESOURCE_EXHAUSTED: the queue is full.  UNAVAILABLE: draining or stopped.  INVALID_ARGUMENT: an
  // empty prompt, or one that leaves no room for a token.
  absl::Status Submit(EngineRequest request, std::shared_ptr<TokenStream> stream);
  // Refuses new requests and waits up to `patience` for the admitted ones to end.
  void Drain(absl::Duration patience);
  // Refuses new requests and ends the engine.  The `reason` of the first call is end_reason().
  void Stop(absl::Status reason);

  // `tokens`: of prompt and answer together.
  void SetMaxSequenceLen(uint32_t tokens);
  // Waits up to `patience` until there are requests that have not ended; false after Stop.
  bool WaitForRequest(absl::Duration patience);
  // The requests submitted since the last call, in order.
  std::vector<SubmittedRequest> Take();
  // Frees the place of a request of `tenant` that has ended.
  void Ended(const std::string& tenant);

  bool draining() const;
  bool stopped() const;
  // The status of requests that are refused now, and of those that end with the engine.
  absl::Status end_reason() const;
  // Requests admitted and not ended.
  uint32_t num_requests() const;
  uint32_t max_sequence_len() const;

 private:
  mutable Mutex mutex_;
  CondVar work_;   // a request was admitted, or Stop called
  CondVar ended_;  // num_requests fell
  std::vector<SubmittedRequest> submitted_ ABSL_GUARDED_BY(mutex_);
  QueuePlaces places_ ABSL_GUARDED_BY(mutex_);  // of all that have not ended, by tenant
  uint32_t max_sequence_len_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_reason_ ABSL_GUARDED_BY(mutex_) =
      absl::UnavailableError("the gateway is shutting down");
};

}  // namespace tandem::gateway
