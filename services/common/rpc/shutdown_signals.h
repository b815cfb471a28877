// SIGTERM and SIGINT as an event to wait for, SIGHUP as a call to read files again.
#pragma once

#include <csignal>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/common/base/terminal.h"
#include "services/common/base/unique_fd.h"

namespace tandem {

// Construct once, first thing in main, before any thread starts: it blocks the three signals for
// this thread and every later one, and takes them on a thread of its own.  The first SIGTERM or
// SIGINT is what Wait returns; a second one, at any time after, ends the process at once with
// status 128 + signal.  A SIGHUP because the terminal has gone counts as one of them.  SIGPIPE is
// ignored.  A child process started by fork+exec inherits the blocked mask: reset it there.
// Thread-safe.
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

  // Runs `reload` on the thread of the signals at each SIGHUP from now on, and here if one came
  // before anybody asked.  An empty one ends that, and returns when the other no longer runs.
  void OnReload(std::function<void()> reload);

 private:
  void Run();
  void Reload();
  void ShutDown(int number);

  const StartingTerminal terminal_;
  sigset_t old_mask_;
  UniqueFd signal_fd_;
  UniqueFd stop_fd_;
  absl::Mutex mutex_;
  bool requested_ ABSL_GUARDED_BY(mutex_) = false;
  int signal_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Mutex reload_mutex_;
  std::function<void()> reload_ ABSL_GUARDED_BY(reload_mutex_);
  bool reload_pending_ ABSL_GUARDED_BY(reload_mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem
