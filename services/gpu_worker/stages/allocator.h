// Allocates one buffer after another; the first failure stays.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/gpu_worker/vulkan/buffer.h"

namespace tandem::gpu {

class Allocator {
 public:
  // `device`: borrowed.
  explicit Allocator(const vulkan::Device& device) : device_(device) {}
  void Make(vulkan::Buffer& buffer, uint64_t bytes, vulkan::MemoryKind kind, const char* what) {
    if (!status_.ok()) return;
    absl::StatusOr<vulkan::Buffer> made = vulkan::Buffer::Allocate(device_, bytes, kind, what);
    if (made.ok()) {
      buffer = *std::move(made);
    } else {
      status_ = made.status();
    }
  }
  const absl::Status& status() const { return status_; }

 private:
  const vulkan::Device& device_;  // Borrowed.
  absl::Status status_;
};

}  // namespace tandem::gpu
