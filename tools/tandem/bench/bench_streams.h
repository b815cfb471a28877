// Runs several requests of the public API at once and records when their tokens arrive.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "tools/tandem/api_client.h"

namespace tandem {

// Each request has a thread of its own.  The destructor cancels the rest.
class BenchStreams {
 public:
  // Starts all requests.  `stub`: borrowed; must outlive this.
  BenchStreams(GenerationStub& stub, std::vector<v1::GenerateRequest> requests);
  ~BenchStreams();
  BenchStreams(const BenchStreams&) = delete;
  BenchStreams& operator=(const BenchStreams&) = delete;

  // Before the first request was sent.
  absl::Time start() const { return start_; }
  // Waits until every stream has a token; returns when the last stream got its first.
  // A stream that fails fails this; INTERNAL: one ended without a token.
  absl::StatusOr<absl::Time> AwaitFirstTokens();
  // Waits until every stream has `count` tokens after `since`; returns when the last arrived.
  // As AwaitFirstTokens; FAILED_PRECONDITION: a stream reached the end of its context.
  absl::StatusOr<absl::Time> AwaitTokens(absl::Time since, size_t count);
  // Tokens of all streams after `from`, up to `to`.
  size_t TokensBetween(absl::Time from, absl::Time to) const;

 private:
  struct Stream {
    v1::GenerateRequest request;
    grpc::ClientContext context;
    std::thread thread;
    // Guarded by mutex_:
    std::vector<absl::Time> tokens;
    bool ended = false;
    absl::Status status;
  };
  void Run(Stream& stream);
  // When `stream` reached `count` tokens after `since`; infinite future: not yet.
  static absl::Time Reached(const Stream& stream, absl::Time since, size_t count);

  GenerationStub& stub_;  // Borrowed.
  absl::Time start_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace tandem
