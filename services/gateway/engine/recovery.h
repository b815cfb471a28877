// Recovery from lost workers.
//
//        MarkLost                   Attempt
//   up -----------> down -------------------------> Succeeded -> up
//                    ^                  |
//                    +-- Pause <-- Failed        each pause is twice as long as the last
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/gateway/executor/executor.h"

namespace tandem::gateway {

struct RecoveryOptions {
  absl::Duration down_wait = absl::Seconds(20);  // how long a new request waits for workers
  absl::Duration min_pause = absl::Milliseconds(500);
  absl::Duration max_pause = absl::Seconds(10);
  // Called on the engine's thread: false at an attempt, true after success.
  std::function<void(bool ready)> on_ready_change;
};

// Belongs to the engine's thread, except reason() and count().
class Recovery {
 public:
  // Called some 50 times a second while the engine waits for workers; false ends a Pause.
  using Turn = std::function<bool()>;

  // `executor`: Borrowed; must outlive this.
  Recovery(Executor& executor, RecoveryOptions options);

  // Whether workers are lost.
  bool down() const { return !why_.ok(); }
  // OK, or the reason of the loss or of the last failed attempt.
  const absl::Status& why() const { return why_; }

  // Workers are lost.  REQUIRES an error.
  void MarkLost(absl::Status why);
  // Runs Executor::Recover on a thread of its own and returns its status.  Calls `turn` meanwhile,
  // which must not use the executor.  REQUIRES down().
  absl::Status Attempt(const Turn& turn);
  // The workers are back and the engine can use them.
  void Succeeded();
  // The attempt failed, or the engine cannot use the workers: they stay lost.  REQUIRES an error.
  void Failed(absl::Status why);
  // Waits before the next attempt.
  void Pause(const Turn& turn);
  // Length of the next Pause.
  absl::Duration pause() const { return pause_; }

  // UNAVAILABLE if a request that has not started has waited `down_wait` for lost workers.
  absl::Status CheckWait(absl::Time submitted, absl::Time now) const;

  // Thread-safe: why workers are lost; empty if none is lost.
  std::string reason() const;
  // Thread-safe: recoveries that succeeded.
  uint64_t count() const;

 private:
  void SetReason(absl::Status why);

  Executor& executor_;  // Borrowed.
  const RecoveryOptions options_;
  absl::Status why_;
  absl::Time since_;  // of the loss
  absl::Duration pause_;

  mutable Mutex mutex_;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
  uint64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem::gateway
