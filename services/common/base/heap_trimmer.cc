#include "services/common/base/heap_trimmer.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace tandem {

std::optional<int64_t> ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  if (!(file >> total >> resident)) return std::nullopt;
  return resident * ::sysconf(_SC_PAGESIZE);
}

namespace {

// Bytes of allocations in use.
int64_t BytesInUse() {
  const struct mallinfo2 heap = ::mallinfo2();
  return static_cast<int64_t>(heap.uordblks + heap.hblkhd);
}

}  // namespace

HeapTrimmer::HeapTrimmer(absl::Duration interval) {
  // Else both grow to the largest allocation that was ever freed, up to 64 MiB for each arena: malloc_trim leaves the free end of
  // an arena alone where it is not the first.
  ::mallopt(M_MMAP_THRESHOLD, kWholeBytes);
  ::mallopt(M_TRIM_THRESHOLD, kWholeBytes);
  ::mallopt(M_ARENA_MAX, kMaxArenas);
  thread_ = std::thread([this, interval] { Run(interval); });
}

HeapTrimmer::~HeapTrimmer() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  ended_.SignalAll();
  thread_.join();
}

void HeapTrimmer::Run(absl::Duration interval) {
  while (true) {
    Look();
    const absl::Time next = absl::Now() + interval;
    const MutexLock lock(mutex_);
    while (!ending_ && ended_.WaitUntil(mutex_, next)) {
    }
    if (ending_) return;
  }
}

void HeapTrimmer::Look() {
  const int64_t in_use = BytesInUse();
  const auto resident = ResidentBytes();
  if (!resident) return;
  // Bytes in memory that no allocation in use explains: code, stacks, shared memory, and what the
  // allocator holds for later.
  const int64_t beside = *resident - in_use;
  lowest_bytes_ = std::min(lowest_bytes_, beside);
  if (beside < lowest_bytes_ + std::max(kWorthBytes, *resident / kWorthPart)) return;
  ::malloc_trim(0);
  // Memory that was freed meanwhile was not trimmed: the next look has to find it.
  lowest_bytes_ = ResidentBytes().value_or(*resident) - std::max(in_use, BytesInUse());
}

}  // namespace tandem
