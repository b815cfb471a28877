#include "services/gpu_worker/vulkan/buffer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/unique_fd.h"
#include "services/gpu_worker/vulkan/result.h"

namespace tandem::vulkan {

// The steps every kind of buffer takes.
class BufferBuilder {
 public:
  static absl::StatusOr<Buffer> Begin(const Device& device, uint64_t bytes,
                                      VkExternalMemoryHandleTypeFlags external) {
    Buffer buffer;
    buffer.device_ = &device;
    buffer.bytes_ = bytes;
    VkExternalMemoryBufferCreateInfo external_info = {
        VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO};
    external_info.handleTypes = external;
    VkBufferCreateInfo info = {VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
    if (external != 0) info.pNext = &external_info;
    info.size = bytes;
    info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                 VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    if (device.info().reads_texels) info.usage |= VK_BUFFER_USAGE_STORAGE_TEXEL_BUFFER_BIT;
    TANDEM_RETURN_IF_ERROR(
        device.Check(device.vk().CreateBuffer(device.handle(), &info, nullptr, &buffer.handle_),
                     absl::StrFormat("vkCreateBuffer of %d bytes", bytes)));
    return buffer;
  }

  static VkMemoryRequirements Requirements(const Buffer& buffer) {
    VkMemoryRequirements requirements;
    buffer.device_->vk().GetBufferMemoryRequirements(buffer.device_->handle(), buffer.handle_,
                                                     &requirements);
    return requirements;
  }

  // `chain`: an import structure or null.
  static absl::Status Finish(Buffer& buffer, uint64_t allocation_bytes, int memory_type,
                             const void* chain, bool map) {
    const Device& device = *buffer.device_;
    VkMemoryAllocateFlagsInfo flags = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, chain};
    flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
    VkMemoryAllocateInfo allocate = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags};
    allocate.allocationSize = allocation_bytes;
    allocate.memoryTypeIndex = static_cast<uint32_t>(memory_type);
    const VkResult allocated =
        device.vk().AllocateMemory(device.handle(), &allocate, nullptr, &buffer.memory_);
    if (allocated != VK_SUCCESS) buffer.memory_ = VK_NULL_HANDLE;
    TANDEM_RETURN_IF_ERROR(
        device.Check(allocated, absl::StrFormat("vkAllocateMemory of %d bytes", allocation_bytes)));
    TANDEM_RETURN_IF_ERROR(device.Check(
        device.vk().BindBufferMemory(device.handle(), buffer.handle_, buffer.memory_, 0),
        "vkBindBufferMemory"));
    if (map) {
      void* data = nullptr;
      TANDEM_RETURN_IF_ERROR(device.Check(
          device.vk().MapMemory(device.handle(), buffer.memory_, 0, VK_WHOLE_SIZE, 0, &data),
          "vkMapMemory"));
      buffer.mapped_ = static_cast<std::byte*>(data);
    }
    VkBufferDeviceAddressInfo info = {VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO};
    info.buffer = buffer.handle_;
    buffer.address_ = device.vk().GetBufferDeviceAddress(device.handle(), &info);
    device.AddBuffer(buffer.address_, buffer.bytes_, buffer.handle_);
    return absl::OkStatus();
  }
};

namespace {

constexpr VkMemoryPropertyFlags kMapped =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;

absl::Status TooLarge(std::string_view what, uint64_t bytes, uint64_t limit) {
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s: %d bytes, the device allocates at most %d at once", std::string(what), bytes, limit));
}

}  // namespace

absl::StatusOr<Buffer> Buffer::Allocate(const Device& device, uint64_t bytes, MemoryKind kind,
                                        std::string_view what) {
  const uint64_t limit =
      std::min(device.info().max_allocation_bytes, device.info().max_buffer_bytes);
  if (bytes > limit) return TooLarge(what, bytes, limit);
  TANDEM_ASSIGN_OR_RETURN(Buffer buffer, BufferBuilder::Begin(device, bytes, 0));
  const VkMemoryRequirements requirements = BufferBuilder::Requirements(buffer);
  // Asking costs up to a millisecond, and changes nothing where there is no choice.
  const HeapRoom room =
      device.info().heaps.size() == 1 ? HeapRoom{device.info().heaps[0].bytes} : device.ReadRoom();
  const std::vector<uint32_t> types =
      MemoryTypesFor(device.info(), room, requirements.memoryTypeBits, kind, requirements.size);
  if (types.empty()) {
    return absl::InternalError(
        absl::StrFormat("%s: the device has no memory type of the wanted kind", std::string(what)));
  }
  absl::Status refused;
  for (const uint32_t type : types) {
    refused = BufferBuilder::Finish(buffer, requirements.size, static_cast<int>(type), nullptr,
                                    IsMapped(kind));
    if (refused.ok()) return buffer;
    // Once bound, a buffer stays with its memory.
    if (!absl::IsResourceExhausted(refused) || buffer.memory_ != VK_NULL_HANDLE) break;
  }
  const std::string heaps = absl::IsResourceExhausted(refused)
                                ? "; " + DescribeRoom(device.info(), device.ReadRoom())
                                : "";
  return absl::Status(refused.code(), absl::StrFormat("%s: %s%s", std::string(what),
                                                      std::string(refused.message()), heaps));
}

absl::StatusOr<Buffer> Buffer::ImportHostPointer(const Device& device, std::byte* data,
                                                 uint64_t bytes) {
  if (!device.info().external_memory_host ||
      !device.vk().GetMemoryHostPointerPropertiesEXT.available()) {
    return absl::UnimplementedError("the device has no VK_EXT_external_memory_host");
  }
  const uint64_t alignment = device.info().host_pointer_alignment;
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("host pointer import wants memory aligned to %d bytes, this begins at %p",
                        alignment, static_cast<void*>(data)));
  }
  bytes = (bytes + alignment - 1) / alignment * alignment;
  if (bytes > device.info().max_allocation_bytes) {
    return TooLarge("host pointer import", bytes, device.info().max_allocation_bytes);
  }
  constexpr auto kHandle = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
  VkMemoryHostPointerPropertiesEXT properties = {
      VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
  TANDEM_RETURN_IF_ERROR(device.Check(
      device.vk().GetMemoryHostPointerPropertiesEXT(device.handle(), kHandle, data, &properties),
      "vkGetMemoryHostPointerPropertiesEXT"));
  TANDEM_ASSIGN_OR_RETURN(Buffer buffer, BufferBuilder::Begin(device, bytes, kHandle));
  const VkMemoryRequirements requirements = BufferBuilder::Requirements(buffer);
  const int type = device.FindMemoryType(requirements.memoryTypeBits & properties.memoryTypeBits,
                                         kMapped, VK_MEMORY_PROPERTY_HOST_CACHED_BIT);
  if (type < 0) return absl::InternalError("no coherent memory type takes this host pointer");
  VkImportMemoryHostPointerInfoEXT import = {VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT};
  import.handleType = kHandle;
  import.pHostPointer = data;
  const absl::Status finished = BufferBuilder::Finish(buffer, bytes, type, &import, false);
  if (finished.ok()) return buffer;
  // RADV does not say that the kernel's driver refuses the mappings of files.
  const char* const hint =
      device.info().waits_hide_loss ? " (amdgpu takes no shared memory by pointer)" : "";
  return absl::Status(finished.code(), absl::StrCat(finished.message(), hint));
}

absl::StatusOr<Buffer> Buffer::ImportDmabuf(const Device& device, int fd, uint64_t bytes) {
  if (!device.info().external_memory_dmabuf || !device.vk().GetMemoryFdPropertiesKHR.available()) {
    return absl::UnimplementedError("the device has no VK_EXT_external_memory_dma_buf");
  }
  constexpr auto kHandle = VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT;
  VkMemoryFdPropertiesKHR properties = {VK_STRUCTURE_TYPE_MEMORY_FD_PROPERTIES_KHR};
  TANDEM_RETURN_IF_ERROR(
      device.Check(device.vk().GetMemoryFdPropertiesKHR(device.handle(), kHandle, fd, &properties),
                   "vkGetMemoryFdPropertiesKHR of a dmabuf"));
  TANDEM_ASSIGN_OR_RETURN(Buffer buffer, BufferBuilder::Begin(device, bytes, kHandle));
  const VkMemoryRequirements requirements = BufferBuilder::Requirements(buffer);
  const int type = device.FindMemoryType(requirements.memoryTypeBits & properties.memoryTypeBits, 0,
                                         VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
  if (type < 0) return absl::InternalError("no memory type takes this dmabuf");
  UniqueFd own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) return absl::InternalError("cannot duplicate the dmabuf's descriptor");
  VkMemoryDedicatedAllocateInfo dedicated = {VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO};
  dedicated.buffer = buffer.handle();
  VkImportMemoryFdInfoKHR import = {VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR, &dedicated};
  import.handleType = kHandle;
  import.fd = own.get();
  const absl::Status finished = BufferBuilder::Finish(buffer, bytes, type, &import, false);
  if (buffer.memory_ != VK_NULL_HANDLE) own.Release();  // the driver owns it from here on
  TANDEM_RETURN_IF_ERROR(finished);
  return buffer;
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  device_ = std::exchange(other.device_, nullptr);
  handle_ = std::exchange(other.handle_, VK_NULL_HANDLE);
  memory_ = std::exchange(other.memory_, VK_NULL_HANDLE);
  bytes_ = std::exchange(other.bytes_, 0);
  address_ = std::exchange(other.address_, 0);
  mapped_ = std::exchange(other.mapped_, nullptr);
  return *this;
}

Buffer Buffer::Alias() const {
  Buffer alias;
  alias.handle_ = handle_;
  alias.bytes_ = bytes_;
  alias.address_ = address_;
  alias.mapped_ = mapped_;
  return alias;
}

void Buffer::Reset() {
  if (device_ == nullptr) return;
  device_->RemoveBuffer(address_, handle_);
  if (handle_ != VK_NULL_HANDLE) device_->vk().DestroyBuffer(device_->handle(), handle_, nullptr);
  if (memory_ != VK_NULL_HANDLE) device_->vk().FreeMemory(device_->handle(), memory_, nullptr);
  device_ = nullptr;
}

}  // namespace tandem::vulkan
