// What a service says to the service manager that started it: systemd's notification protocol
// (sd_notify(3)), one datagram of NAME=VALUE lines a message, descriptors beside them.
//
// The protocol is small and promised to stay as it is, so nothing is linked for it.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/common/base/unique_fd.h"

namespace tandem {

// A descriptor that the manager kept while the service was away.
struct InheritedDescriptor {
  std::string name;
  UniqueFd fd;  // close-on-exec
};

// Without a manager every call returns at once and does nothing.  A call takes at most two seconds
// if the manager does not read.  Thread-safe after construction.
class ServiceManager {
 public:
  // No manager: no call has an effect.
  ServiceManager() = default;
  // The manager that NOTIFY_SOCKET names; WATCHDOG_USEC counts if WATCHDOG_PID is ours or unset.
  // An unusable address is logged.
  static ServiceManager FromEnvironment();

  bool present() const { return socket_.valid(); }
  // How often Alive is expected; zero: never.
  absl::Duration watchdog() const { return watchdog_; }

  void Ready() const { Notify("READY=1"); }
  void Stopping() const { Notify("STOPPING=1"); }
  void Alive() const { Notify("WATCHDOG=1"); }
  // One line for `systemctl status`.
  void Status(std::string_view text) const;
  // The start or the end under way needs up to `more` from now on.
  void ExtendTimeout(absl::Duration more) const;

  // Has the manager keep copies of `fds` under `name` until RemoveDescriptors or the service's end,
  // and pass them on when it starts the service again.  FAILED_PRECONDITION: no manager.
  // INVALID_ARGUMENT: a name that the protocol cannot carry.  UNAVAILABLE: it does not read.
  // Success does not mean that the unit's FileDescriptorStoreMax= is large enough.
  absl::Status StoreDescriptors(std::string_view name, std::span<const int> fds) const;
  absl::Status RemoveDescriptors(std::string_view name) const;
  // Returns when the manager has acted on all messages sent before.  DEADLINE_EXCEEDED.
  absl::Status Barrier(absl::Duration timeout) const;

 private:
  void Notify(std::string_view message) const;
  absl::Status Send(std::string_view message, std::span<const int> fds) const;

  UniqueFd socket_;
  sockaddr_un address_{};
  socklen_t address_bytes_ = 0;
  absl::Duration watchdog_;
};

// The descriptors that the manager passed to this process (LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES),
// to be taken once, before other descriptors are opened.  None where those are another process's.
std::vector<InheritedDescriptor> TakeInheritedDescriptors();

}  // namespace tandem
