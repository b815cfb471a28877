// Computes the embeddings of one request's inputs.
//
//   inputs  [ 0 | 1 | 2 | ... | n - 1 ]  ->  at most kMostAtOnce with the engine  ->  done, once
//
// The others wait here, so that a request of many inputs neither fills the engine's queue nor is
// refused for its length.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "services/common/base/mutex.h"
#include "services/gateway/engine/request_sink.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

struct EmbedResult {
  absl::Status status;                         // of the first input that failed
  std::vector<std::vector<float>> embeddings;  // by input, when the status is OK
  // Of all inputs that started.  Tokens and device times are sums; seconds count from the start to
  // the first row and to the end.
  v1::Usage usage;
};

// Thread-safe.  Lives until it is done.
class EmbedRun : public std::enable_shared_from_this<EmbedRun> {
 public:
  static constexpr size_t kMostAtOnce = 8;
  using Done = std::function<void(EmbedResult result)>;

  // `engine`: Borrowed; must outlive the run.  `done` is called once, from Start, Cancel or a
  // thread of the engine, with no lock held, and then destroyed.  REQUIRES requests for embeddings,
  // one at least.
  static std::shared_ptr<EmbedRun> Create(RequestSink& engine, std::vector<EngineRequest> requests,
                                          Done done, size_t most_at_once = kMostAtOnce);

  // Begins, once; not if it was cancelled.
  void Start() { Pump(); }
  // Nobody waits for the result any more: it ends with CANCELLED within a step.
  void Cancel();

 private:
  EmbedRun(RequestSink& engine, std::vector<EngineRequest> requests, Done done,
           size_t most_at_once);
  // Hands over what may be, or ends.
  void Pump();
  absl::Status SubmitOne(size_t input, const std::shared_ptr<TokenStream>& stream);
  void OnReady(size_t input);
  void Fail(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddUsage(const v1::Usage& usage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  RequestSink& engine_;  // Borrowed.
  const std::vector<EngineRequest> requests_;
  const size_t most_at_once_;
  const absl::Time begin_ = absl::Now();

  Mutex mutex_;
  Done done_ ABSL_GUARDED_BY(mutex_);  // empty once it has been called
  std::deque<size_t> waiting_ ABSL_GUARDED_BY(mutex_);
  std::map<size_t, std::shared_ptr<TokenStream>> streams_
      ABSL_GUARDED_BY(mutex_);  // with the engine
  EmbedResult result_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::gateway
