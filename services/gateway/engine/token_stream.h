// One request's way from the engine to its reader.
//
//   engine thread      notifier thread        reader (a gRPC reaction)
//   Push, Push ...  -> Notify -> on_ready  -> Take: everything since the last Take, as one piece
//
// Unread output is kept merged, so that a slow reader gets fewer and larger pieces; the engine
// never waits for it.  A reader that falls max_unread_tokens behind is given up.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "services/common/base/mutex.h"
#include "services/gateway/sampling/sampler.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// Text and tokens in order.
struct StreamUpdate {
  std::string text;
  std::vector<Decision> tokens;
  std::vector<Decision> prompt_tokens;

  bool empty() const { return text.empty() && tokens.empty() && prompt_tokens.empty(); }
};

// How a request ended.  `reason` and `usage` count when `status` is OK.
struct StreamEnd {
  absl::Status status;
  v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED;
  v1::Usage usage;
  std::vector<float> embedding;  // [hidden_dim], of a request for one
};

// Thread-safe.
class TokenStream {
 public:
  // `on_ready` is called when there is something to take: from one thread at a time, never from
  // within Push or End, and never again once the end has been notified, when it is destroyed.
  TokenStream(uint32_t max_unread_tokens, std::function<void()> on_ready)
      : max_unread_tokens_(max_unread_tokens), on_ready_(std::move(on_ready)) {}

  enum class PushResult {
    kMerged,  // the reader has a notification coming
    kNotify,  // the caller must see to Notify being called
    kFull,    // the reader is too far behind: not taken
  };
  PushResult Push(StreamUpdate update);
  // The last thing the engine does; Notify must follow.
  void End(StreamEnd end);
  void Notify();

  struct Batch {
    StreamUpdate update;
    std::optional<StreamEnd> end;
  };
  // Everything since the last call; `end` once.
  Batch Take();
  // The reader has gone: the engine ends the request within a step.
  void Cancel();
  bool cancelled() const;

 private:
  const uint32_t max_unread_tokens_;
  std::function<void()> on_ready_;  // the notifier's alone
  mutable Mutex mutex_;
  StreamUpdate unread_ ABSL_GUARDED_BY(mutex_);
  std::optional<StreamEnd> end_ ABSL_GUARDED_BY(mutex_);
  bool notifying_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem::gateway
