// A core of a recorded design: its program runs on a thread of its own, and never while anything else of the
// array moves.
#pragma once

#include <semaphore>
#include <span>
#include <thread>
#include <vector>

#include "services/npu_worker/kernels/aie_host/core_programs.h"

namespace tandem::npu::emulator {

// What a tile's locks count.
using LockCounts = std::vector<uint32_t>;

// Thread-compatible.
class RecordedCore final : public CoreLocks {
 public:
  // `locks`: borrowed, must outlive this.
  RecordedCore(CoreProgram program, LockCounts& locks, std::vector<void*> buffers);
  // Ends the program.
  ~RecordedCore() override;

  // Runs the program until it waits for a lock.  False: the lock that it waits for does not count enough.
  bool Advance();
  // The lock that it waits for.
  unsigned awaited_lock() const { return awaited_lock_; }

  void Take(unsigned lock, unsigned count) override;
  void Release(unsigned lock, unsigned count) override { locks_[lock] += count; }

 private:
  struct Ended {};
  void Run(CoreProgram program);

  LockCounts& locks_;
  const std::vector<void*> buffers_;
  unsigned awaited_lock_ = 0;
  unsigned awaited_count_ = 0;
  bool ends_ = false;
  std::binary_semaphore turn_of_core_{0};
  std::binary_semaphore turn_of_array_{0};
  std::thread thread_;
};

}  // namespace tandem::npu::emulator
