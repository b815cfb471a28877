// Gives memory that was freed back to the system.
#pragma once

#include <cstdint>
#include <optional>
#include <thread>

#include "absl/time/time.h"
#include "services/common/base/mutex.h"

namespace tandem {

// The allocator keeps memory that large requests have freed: for ever, where small pieces in use lie
// between.  A thread looks at the process now and then.  Once it is worth the time, it has the
// allocator give free memory back.
class HeapTrimmer {
 public:
  // A trim starts when the unused memory has grown by this, or by this part of all that is in memory if that is more.
  static constexpr int64_t kWorthBytes = 512 << 10;
  static constexpr int64_t kWorthPart = 64;
  // Allocations of this size go back when they are freed, and so does the free end of an arena.
  // The logits of a row, 1 MiB, are below it.
  static constexpr int kWholeBytes = 2 << 20;
  // Each arena may keep kWholeBytes free at its end.  By default glibc makes eight arenas for each processor.
  static constexpr int kMaxArenas = 8;

  explicit HeapTrimmer(absl::Duration interval = absl::Seconds(5));
  ~HeapTrimmer();
  HeapTrimmer(const HeapTrimmer&) = delete;
  HeapTrimmer& operator=(const HeapTrimmer&) = delete;

 private:
  void Run(absl::Duration interval);
  void Look();

  int64_t lowest_bytes_ = INT64_MAX;  // the thread's own
  Mutex mutex_;
  CondVar ended_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Bytes of this process that are in memory (its resident set); nothing where /proc does not say.
std::optional<int64_t> ResidentBytes();

}  // namespace tandem
