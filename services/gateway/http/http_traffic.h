// Counts what an HTTP server answers, for metrics.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "services/common/base/mutex.h"

namespace tandem::gateway {

// Thread-safe.  Its size depends on routes and statuses alone, never on what clients send.
class HttpTraffic {
 public:
  struct Counts {
    uint64_t connections = 0;  // open now
    // By path template ("other": no route) and status.
    std::map<std::pair<std::string, int>, uint64_t> answers;
  };

  void SetConnections(uint64_t num_connections) {
    MutexLock lock(mutex_);
    counts_.connections = num_connections;
  }
  void CountAnswer(const std::string& path_template, int status) {
    MutexLock lock(mutex_);
    ++counts_.answers[{path_template, status}];
  }
  Counts counts() const {
    MutexLock lock(mutex_);
    return counts_;
  }

 private:
  mutable Mutex mutex_;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::gateway
