// Keeps the service manager informed while a service starts, runs and ends.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/common/systemd/service_manager.h"

namespace tandem {

// How a service is.
struct Pulse {
  bool serving = false;  // READY=1 is said at the first pulse with this
  bool starting = true;  // before that: the start makes progress, so its time is extended
  bool alive = true;     // false: WATCHDOG=1 is withheld, and the manager will end the service
  std::string status;    // one line
};

// Asks for the pulse on a thread of its own: every `start_interval` until the service serves, then
// every half of the watchdog's interval, or every `status_interval` if that is shorter.  A pulse
// that does not return is a watchdog that is not fed.  Without a manager it is never asked for.
class Heartbeat {
 public:
  struct Options {
    absl::Duration start_interval = absl::Milliseconds(200);
    absl::Duration status_interval = absl::Seconds(5);
    absl::Duration start_extension = absl::Seconds(60);  // from each pulse of a start on
  };

  // `manager`: Borrowed; must outlive this.
  Heartbeat(const ServiceManager& manager, std::function<Pulse()> pulse, Options options);
  Heartbeat(const ServiceManager& manager, std::function<Pulse()> pulse)
      : Heartbeat(manager, std::move(pulse), Options()) {}
  // As End.
  ~Heartbeat();

  // Says STOPPING=1 with `status`, and asks for no pulse after it returns.  Later calls do nothing.
  void End(std::string_view status);

 private:
  void Run();
  // Returns how long the thread may sleep.
  absl::Duration Beat();

  const ServiceManager& manager_;
  const std::function<Pulse()> pulse_;
  const Options options_;

  // The thread's own.
  bool ready_ = false;
  std::string said_;
  absl::Time next_extension_ = absl::InfinitePast();
  absl::Time next_alive_ = absl::InfinitePast();

  absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem
