// Device addresses of the emulated NPU and the host memory behind them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace tandem::npu::emulator {

// What an IOMMU does: an access outside a buffer is an error, not a crash.  Thread-safe.
class AddressSpace {
 public:
  // Makes [address, address + bytes) stand for `host`.  INVALID_ARGUMENT when it overlaps
  // another buffer, is empty or wraps.  Borrowed; must stay mapped until Remove returns.
  absl::Status Add(uint64_t address, std::byte* host, uint64_t bytes);
  // Waits for the command that is being executed.  Unknown addresses are ignored.
  void Remove(uint64_t address);

  // Holds every buffer in place while it lives: a command is executed under one View.
  class ABSL_SCOPED_LOCKABLE View {
   public:
    explicit View(const AddressSpace& space) ABSL_SHARED_LOCK_FUNCTION(space.mutex_)
        : space_(space) {
      space_.mutex_.ReaderLock();
    }
    ~View() ABSL_UNLOCK_FUNCTION() { space_.mutex_.ReaderUnlock(); }
    View(const View&) = delete;
    View& operator=(const View&) = delete;

    // From `address` to the end of the buffer that holds it.  OUT_OF_RANGE when none does.
    absl::StatusOr<std::span<std::byte>> Buffer(uint64_t address) const;

   private:
    const AddressSpace& space_;
  };

 private:
  struct Range {
    std::byte* host;
    uint64_t bytes;
  };
  mutable absl::Mutex mutex_;
  std::map<uint64_t, Range> ranges_ ABSL_GUARDED_BY(mutex_);
};

// The part [offset, offset + bytes) of `buffer`.  OUT_OF_RANGE naming `what` and both ends.
absl::StatusOr<std::span<std::byte>> Within(std::span<std::byte> buffer, uint64_t offset,
                                            uint64_t bytes, const char* what);

}  // namespace tandem::npu::emulator
