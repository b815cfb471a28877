// Memory with a device address: allocated, or somebody else's imported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/gpu_worker/vulkan/device.h"
#include "services/gpu_worker/vulkan/memory_choice.h"

namespace tandem::vulkan {

// Move-only.  The device is borrowed and must outlive the buffer.
class Buffer {
 public:
  // From the first memory type of the kind that has room (MemoryTypesFor).  RESOURCE_EXHAUSTED
  // names `what`, the bytes wanted and the limit, or what each heap has free.
  static absl::StatusOr<Buffer> Allocate(const Device& device, uint64_t bytes, MemoryKind kind,
                                         std::string_view what);
  // Makes host memory readable (and writable) by the device, without a copy.  `data` must be a
  // multiple of the device's host_pointer_alignment; the import may reach to the next multiple
  // past the end.  The memory must outlive the buffer.
  // UNIMPLEMENTED: the device does not; other codes: the driver refused this memory.
  static absl::StatusOr<Buffer> ImportHostPointer(const Device& device, std::byte* data,
                                                  uint64_t bytes);
  // Imports a dmabuf from its start; the descriptor is duplicated.  UNIMPLEMENTED likewise.
  static absl::StatusOr<Buffer> ImportDmabuf(const Device& device, int fd, uint64_t bytes);

  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { Reset(); }

  // The same memory, which must outlive it.
  Buffer Alias() const;

  VkBuffer handle() const { return handle_; }
  uint64_t bytes() const { return bytes_; }
  VkDeviceAddress address() const { return address_; }
  // Empty when not mapped.
  std::span<std::byte> mapped() const { return {mapped_, mapped_ == nullptr ? 0 : bytes_}; }

 private:
  friend class BufferBuilder;
  void Reset();

  const Device* device_ = nullptr;  // Borrowed; null for an alias.
  VkBuffer handle_ = VK_NULL_HANDLE;
  VkDeviceMemory memory_ = VK_NULL_HANDLE;
  uint64_t bytes_ = 0;
  VkDeviceAddress address_ = 0;
  std::byte* mapped_ = nullptr;
};

}  // namespace tandem::vulkan
