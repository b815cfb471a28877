// A hardware queue: executes submissions in order, on a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "services/gpu_worker/emulator/driver/sync.h"

namespace tandem::rdna {

struct IndirectBuffer {
  uint64_t address = 0;
  uint32_t words = 0;
};

struct Job {
  uint64_t submission = 0;  // counted from 1 over all rings
  uint64_t sequence = 0;    // of this ring, from 1; the ring sets it
  std::vector<IndirectBuffer> buffers;
  std::vector<FencePtr> waits;
  FencePtr done;                   // signalled after it ran, or failed
  uint64_t* user_fence = nullptr;  // where its sequence is written then; may be nullptr
  bool lose_device = false;
};

// Thread-safe.
class Ring {
 public:
  // `run` is called on the ring's thread, for one job after another, once all of its waits are
  // signalled.  `sync` is borrowed and must outlive this.
  Ring(SyncTable& sync, std::function<void(const Job&)> run);
  // Executes what was submitted, but no longer waits for fences of others.
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Returns the job's sequence.
  uint64_t Submit(Job job);
  // The fence of a job that has not ended; nullptr: it has.
  FencePtr Find(uint64_t sequence) const;
  // Waits until what was submitted has ended, or waits for a fence.
  void Settle();

 private:
  void Loop();

  SyncTable& sync_;
  const std::function<void(const Job&)> run_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, settled_;
  std::deque<Job> jobs_;
  std::map<uint64_t, FencePtr> pending_;
  uint64_t last_sequence_ = 0;
  bool stop_ = false;
  bool waits_for_fence_ = false;
  std::thread thread_;
};

}  // namespace tandem::rdna
