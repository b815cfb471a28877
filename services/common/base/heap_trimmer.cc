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

HeapTrimmer::HeapTrimmer(absl::Duration interval) : thread_([this, interval] { Run(interval); }) {}

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
  const auto resident = ResidentBytes();
  if (!resident) return;
  lowest_bytes_ = std::min(lowest_bytes_, *resident);
  // The allocator counts as free what it gave back before, too: only growth says that there is more.
  if (*resident < lowest_bytes_ + kWorthBytes) return;
  if (static_cast<int64_t>(::mallinfo2().fordblks) < kWorthBytes) return;
  ::malloc_trim(0);
  lowest_bytes_ = ResidentBytes().value_or(*resident);
}

}  // namespace tandem
