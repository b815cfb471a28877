// A door that opens once, for tests.
#pragma once

#include "services/common/base/mutex.h"

namespace tandem::gateway::testing {

// Thread-safe.
class Gate {
 public:
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.SignalAll();
  }
  void Wait() {
    MutexLock lock(mutex_);
    while (!open_) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem::gateway::testing
