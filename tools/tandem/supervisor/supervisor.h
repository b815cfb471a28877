// Keeps a set of services running: starts them, restarts those that end, drains them in order.
//
// A service that ends is started again after a delay that doubles from `first_delay` to
// `last_delay` and is forgotten once it has run for `steady_after`.  After `crash_limit` ends
// within `crash_window` its circuit opens: one try every `open_delay`, loudly.  After an exit code in
// `final_exit_codes` the service is left alone and the others go on.  One in `fatal_exit_codes` means
// that another start would end the same way.  Until MarkReady such an end, and a circuit that opens,
// stop everything: what never worked is not tried for ever.  A code in both is a fault, logged as an
// error, that the others do without; one in `final_exit_codes` alone: nothing to do here.
//
// A service with `give_up` never stops the others.  Until it has run for `steady_after`, before or
// after MarkReady, a fatal exit code or an open circuit means that it is left alone.
//
// What services print goes to rotated files (log_collector.h).
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/common/base/restart_times.h"
#include "services/common/base/terminal.h"
#include "services/common/base/unique_fd.h"
#include "tools/tandem/supervisor/log_collector.h"
#include "tools/tandem/supervisor/process.h"

namespace tandem {

struct ServiceSpec {
  ProcessSpec process;
  std::set<int> final_exit_codes;
  std::set<int> fatal_exit_codes;
  // For a service that the others can do without: called once, with the reason, when it is left alone
  // after a fatal exit code, an open circuit or a failed start.
  std::function<void(const std::string& reason)> give_up;
  // Services are stopped in descending order, those of one rank together.
  int stop_rank = 0;
  absl::Duration stop_grace = absl::Seconds(5);  // then SIGKILL
  bool takes_hangup = false;                     // reads files again at SIGHUP
};

struct SupervisorOptions {
  absl::Duration first_delay = absl::Milliseconds(100);
  absl::Duration last_delay = absl::Seconds(10);
  absl::Duration steady_after = absl::Seconds(30);
  int crash_limit = 8;
  absl::Duration crash_window = absl::Seconds(60);
  absl::Duration open_delay = kOpenCircuitDelay;
  // SIGINT and SIGTERM drain, as does SIGHUP when the terminal has gone; another, a second later,
  // kills.  Any other SIGHUP is passed on.
  bool handle_signals = true;
  LogRotation rotation;
};

// Single-thread: Create and Run on the main thread.  RequestStop, MarkReady and Restarts from any
// thread.
class Supervisor {
 public:
  // INTERNAL: a log file cannot be opened.
  static absl::StatusOr<std::unique_ptr<Supervisor>> Create(std::vector<ServiceSpec> services,
                                                            SupervisorOptions options);
  ~Supervisor();

  // Starts every service.  The first that cannot be started, and has no `give_up`, stops the others
  // and is the error.
  absl::Status Start();
  // Watches until a signal or RequestStop, then drains.  OK when every service ended by itself
  // within its grace, DEADLINE_EXCEEDED naming those that had to be killed, FAILED_PRECONDITION
  // with the last line of its log when a service cannot run.
  absl::Status Run();
  void RequestStop();
  // The services work together: from now on each is started again however it ends, except those
  // with `give_up` that have never worked.
  void MarkReady() { ready_ = true; }
  LogCollector& logs() { return *logs_; }

  struct ServiceState {
    std::string name;
    pid_t pid = 0;  // 0: not running
    int restarts = 0;
    bool finished = false;  // ended and is not started again
    std::string last_end;
  };
  // Thread-compatible with Run (call from the same thread, or after it).
  std::vector<ServiceState> States() const;
  // By service, in the order given.  Thread-safe.
  std::vector<std::pair<std::string, int>> Restarts() const;

 private:
  struct Service {
    ServiceSpec spec;
    ServiceState state;
    absl::Time started;
    absl::Time next_start = absl::InfiniteFuture();
    absl::Duration delay;
    bool worked = false;  // ran for steady_after
    std::deque<absl::Time> ends;
  };

  Supervisor(std::vector<ServiceSpec> services, SupervisorOptions options);
  absl::Status StartService(Service& service);
  void ReapAll(bool draining);
  // Whether it is not to be started again: the end of everything, or of a service with `give_up`.
  bool CannotRun(const Service& service, const ProcessEnd& end) const;
  void GiveUp(Service& service, const std::string& reason);
  void ScheduleRestart(Service& service, const ProcessEnd& end);
  // Of a service that is left alone.
  void LogFinal(const Service& service, const ProcessEnd& end);
  std::string LastLine(const Service& service);
  void StartDue();
  absl::Status Drain();
  void PassHangupOn();
  // Waits for a signal or until `deadline`; true when asked to stop (again).
  bool WaitForEvent(absl::Time deadline);

  std::unique_ptr<LogCollector> logs_;
  std::vector<Service> services_;
  std::atomic<bool> ready_ = false;
  absl::Status fatal_;  // why everything must stop
  SupervisorOptions options_;
  const StartingTerminal terminal_;
  UniqueFd signal_fd_;
  UniqueFd stop_fd_;  // eventfd of RequestStop
  mutable Mutex mutex_;
  std::vector<int> restarts_ ABSL_GUARDED_BY(mutex_);  // by service
};

}  // namespace tandem
