// A logical device with its one compute queue.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/gpu_worker/vulkan/api.h"
#include "services/gpu_worker/vulkan/device_info.h"
#include "services/gpu_worker/vulkan/instance.h"
#include "services/gpu_worker/vulkan/memory_choice.h"

namespace tandem::vulkan {

// Single-thread.  Everything made from a device must be gone before it is.
class Device {
 public:
  // `instance`: borrowed; must outlive this.  `index`: into its devices().
  // `import_memory` false: as if the device could import no memory of others.
  static absl::StatusOr<std::unique_ptr<Device>> Create(const Instance& instance, size_t index,
                                                        bool import_memory = true);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  VkDevice handle() const { return handle_; }
  VkQueue queue() const { return queue_; }
  const DeviceTable& vk() const { return table_; }
  const DeviceInfo& info() const { return info_; }

  // Free bytes of the heaps, now.
  HeapRoom ReadRoom() const;
  // Index of a memory type among the bits of `allowed` with all of `required` and as many of
  // `preferred` as one has; -1: none.
  int FindMemoryType(uint32_t allowed, VkMemoryPropertyFlags required,
                     VkMemoryPropertyFlags preferred) const;

  // Where in a buffer a device address lies; null: in none.
  struct BufferRange {
    VkBuffer buffer = VK_NULL_HANDLE;
    uint64_t offset = 0;
    uint64_t bytes = 0;  // from there to the buffer's end
  };
  BufferRange FindBuffer(VkDeviceAddress address) const;
  // Buffers tell of themselves.
  void AddBuffer(VkDeviceAddress address, uint64_t bytes, VkBuffer buffer) const;
  void RemoveBuffer(VkDeviceAddress address, VkBuffer buffer) const;

  // ToStatus, and remembers a lost device.
  absl::Status Check(VkResult result, std::string_view what) const;
  // The device has been lost, or did not answer in time: nothing will come of it any more.
  bool lost() const { return lost_; }
  void MarkLost() const { lost_ = true; }

 private:
  explicit Device(const InstanceTable& instance) : instance_(instance) {}
  const InstanceTable& instance_;  // Borrowed.
  VkDevice handle_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  DeviceTable table_;
  DeviceInfo info_;
  mutable bool lost_ = false;
  struct KnownBuffer {
    uint64_t bytes;
    VkBuffer buffer;
  };
  mutable std::multimap<VkDeviceAddress, KnownBuffer> buffers_;
};

}  // namespace tandem::vulkan
