// Threads that process requests' bodies: parsing, validation, tokenisation.
//
// Small and large requests have a queue each, and senders take turns in it: the sender that has
// waited longest is next.  At most half of the threads process large requests, so a small request
// never waits behind a large one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "services/common/base/mutex.h"
#include "services/common/base/turn_queue.h"

namespace tandem::gateway {

// Thread-safe.
class HandlerPool {
 public:
  // REQUIRES num_threads >= 2.
  explicit HandlerPool(uint32_t num_threads);
  // As Stop.
  ~HandlerPool();

  // Runs `work` on a thread of the pool.  After Stop it is destroyed, not run.
  void Post(const std::string& sender, size_t body_bytes, std::function<void()> work);
  // Destroys work that has not started, and waits for the rest.
  void Stop();

 private:
  // One kind of work.
  using Line = TurnQueue<std::function<void()>>;

  void Run();

  const uint32_t max_large_;
  Mutex mutex_;
  CondVar changed_;
  Line small_ ABSL_GUARDED_BY(mutex_);
  Line large_ ABSL_GUARDED_BY(mutex_);
  uint32_t num_large_ ABSL_GUARDED_BY(mutex_) = 0;  // being worked on
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tandem::gateway
