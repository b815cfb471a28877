// The service manager's end of the notification protocol, for tests.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/common/base/unique_fd.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem::testing {

// Listens on a socket of its own directory, records messages, keeps descriptors as systemd does,
// and lets barriers through.  Thread-safe.
class FakeServiceManager {
 public:
  FakeServiceManager();
  ~FakeServiceManager();
  FakeServiceManager(const FakeServiceManager&) = delete;
  FakeServiceManager& operator=(const FakeServiceManager&) = delete;

  // NOTIFY_SOCKET.
  const std::string& socket() const { return socket_path_; }

  // Every line so far, "READY=1".
  std::vector<std::string> Lines() const;
  // Waits until a line for which `wanted` holds has come; false: it has not within a minute.
  bool WaitForLine(const std::function<bool(const std::string&)>& wanted);
  bool WaitForLine(const std::string& line);
  size_t Count(const std::string& line) const;

  // Names of the descriptors in the store, one a descriptor, in the order in which systemd passes
  // them on: the newest first.
  std::vector<std::string> StoredNames() const;
  // The descriptors themselves, still the manager's, in the same order.
  std::vector<int> StoredDescriptors() const;

 private:
  struct Stored {
    std::string name;
    UniqueFd fd;
  };
  void Run();
  void Take(const std::string& message, std::vector<UniqueFd> fds);

  const TemporaryDirectory directory_;
  std::string socket_path_;
  UniqueFd socket_;
  UniqueFd stop_;
  mutable absl::Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
  std::vector<Stored> stored_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tandem::testing
