// SIGTERM and SIGINT as an event to wait for.
#pragma once

#include <csignal>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/common/base/unique_fd.h"

namespace tandem {

// Construct once, first thing in main, before any thread starts: it blocks both signals for this
// thread and every later one, and takes them on a thread of its own.  The first signal is what
// Wait returns; a second one, at any time after, ends the process at once with status 128 + signal.
// SIGPIPE is ignored.  A child process started by fork+exec inherits the blocked mask: reset it
// there.  Thread-safe.
class ShutdownSignals {
 public:
  ShutdownSignals();
  ~ShutdownSignals();  // restores the mask of the destroying thread
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

  // Returns the first signal's number, 0 after Request().
  int Wait();
  // The same, within `timeout`; false: none came.
  bool WaitFor(absl::Duration timeout);
  // As if a signal had come, for a service that ends by itself.
  void Request();

 private:
  void Run();

  sigset_t old_mask_;
  UniqueFd signal_fd_;
  UniqueFd stop_fd_;
  absl::Mutex mutex_;
  bool requested_ ABSL_GUARDED_BY(mutex_) = false;
  int signal_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace tandem
