// Copies host memory to device memory through a staging buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "services/gpu_worker/vulkan/buffer.h"
#include "services/gpu_worker/vulkan/command_buffer.h"
#include "services/gpu_worker/vulkan/device.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::vulkan {

// Uses two halves of a staging buffer in turn: several threads fill one while the device copies the
// other.  For loading, not for steps.  Single-thread; its own threads end with each call.
class Uploader {
 public:
  // `device`, `timeline`: borrowed; must outlive this.
  static absl::StatusOr<std::unique_ptr<Uploader>> Create(const Device& device, Timeline& timeline,
                                                          uint64_t half_bytes);
  // Copies `data` to `to` at `offset`.  On return all but the last pieces have arrived: Finish.
  absl::Status Upload(std::span<const std::byte> data, const Buffer& to, uint64_t offset);
  // Sets every byte of `buffer` to zero.
  absl::Status Clear(const Buffer& buffer);
  absl::Status Finish();

 private:
  Uploader(const Device& device, Timeline& timeline) : device_(device), timeline_(timeline) {}
  absl::Status WaitFor(int half);

  const Device& device_;  // Borrowed.
  Timeline& timeline_;    // Borrowed.
  uint64_t half_bytes_ = 0;
  Buffer staging_;
  PipelineLayout layout_;
  CommandPool pools_[2];
  uint64_t pending_[2] = {0, 0};  // timeline values; 0: none
  int next_ = 0;
};

// Its destructor waits for copies under way.  Declare it after the destination buffers: so they
// outlive the copies if an error occurs between upload and Finish.
class FinishUploads {
 public:
  explicit FinishUploads(Uploader& uploader) : uploader_(uploader) {}
  ~FinishUploads() { uploader_.Finish().IgnoreError(); }
  FinishUploads(const FinishUploads&) = delete;
  FinishUploads& operator=(const FinishUploads&) = delete;

 private:
  Uploader& uploader_;
};

}  // namespace tandem::vulkan
