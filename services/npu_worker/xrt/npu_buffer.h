// A buffer object of the NPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::npu {

// Slices start at multiples of this.
inline constexpr size_t kSliceAlignment = 4096;

// Move-only; frees the buffer.  Thread-compatible.
class NpuBuffer {
 public:
  NpuBuffer();
  NpuBuffer(NpuBuffer&&) noexcept;
  NpuBuffer& operator=(NpuBuffer&&) noexcept;
  ~NpuBuffer();

  bool valid() const { return impl_ != nullptr; }
  // The host's mapping of it; nullptr for a device-only import.
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // Where the device sees it.
  absl::StatusOr<uint64_t> DeviceAddress() const;

  // Makes what the host wrote visible to the device, or the reverse, for a range.
  // REQUIRES offset + bytes <= size().
  absl::Status SyncToDevice(size_t offset, size_t bytes) const;
  absl::Status SyncFromDevice(size_t offset, size_t bytes) const;

  // A part as a buffer of its own, sharing memory; `offset` a multiple of kSliceAlignment.
  absl::StatusOr<NpuBuffer> Slice(size_t offset, size_t bytes) const;

 private:
  friend class NpuCode;
  friend class NpuKernel;
  friend class NpuRun;
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tandem::npu
