// A door that opens once, for tests.
#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/common/base/check.h"
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
  // REQUIRES it opens within a minute.
  void Wait() {
    MutexLock lock(mutex_);
    const absl::Time patience = absl::Now() + absl::Minutes(1);
    while (!open_) TANDEM_CHECK(changed_.WaitUntil(mutex_, patience));
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem::gateway::testing
