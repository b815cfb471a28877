// Device addresses of the emulated NPU and the host memory behind them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

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
  class View {
   public:
    explicit View(const AddressSpace& space) : space_(space), lock_(space.mutex_) {}

    // From `address` to the end of the buffer that holds it.  OUT_OF_RANGE when none does.
    absl::StatusOr<std::span<std::byte>> Buffer(uint64_t address) const;

   private:
    const AddressSpace& space_;
    std::shared_lock<std::shared_mutex> lock_;
  };

 private:
  struct Range {
    std::byte* host;
    uint64_t bytes;
  };
  mutable std::shared_mutex mutex_;  // guards ranges_
  std::map<uint64_t, Range> ranges_;
};

// The part [offset, offset + bytes) of `buffer`.  OUT_OF_RANGE naming `what` and both ends.
absl::StatusOr<std::span<std::byte>> Within(std::span<std::byte> buffer, uint64_t offset,
                                            uint64_t bytes, const char* what);

}  // namespace tandem::npu::emulator
