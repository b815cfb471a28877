// Entry points of memory, command buffers and the queue.  Nothing runs: a submission is over at once.
#include <sys/mman.h>
#include <vulkan/vulkan.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "tools/kernel_report/null_objects.h"

namespace tandem::report {
namespace {

using gpu::KernelId;

constexpr uint64_t kFirstAddress = uint64_t{1} << 40;
uint64_t next_address = kFirstAddress;
std::map<uint64_t, NullBuffer*>& Buffers() {
  static std::map<uint64_t, NullBuffer*> buffers;
  return buffers;
}

// Mapped memory from an address on; empty: none is there.
std::span<std::byte> MappedFrom(uint64_t address) {
  auto it = Buffers().upper_bound(address);
  if (it == Buffers().begin()) return {};
  const NullBuffer& buffer = *(--it)->second;
  const bool inside = address - buffer.address < buffer.bytes;
  if (!inside || buffer.memory == nullptr || buffer.memory->mapped == nullptr) return {};
  return std::span(buffer.memory->mapped, buffer.bytes).subspan(address - buffer.address);
}

}  // namespace

std::span<const std::byte> NullDriver::Mapped(uint64_t address, uint64_t bytes) {
  const std::span<std::byte> mapped = MappedFrom(address);
  return mapped.size() < bytes ? std::span<std::byte>() : mapped.first(bytes);
}

// A struct, so that they reach the driver's members.
struct QueueEntries {
  static NullDriver& Driver() { return NullDriver::Get(); }

  // Memory: addresses that nothing reads, and pages where the host maps them.

  static VkResult CreateBuffer(VkDevice, const VkBufferCreateInfo* info,
                               const VkAllocationCallbacks*, VkBuffer* buffer) {
    auto* made = new NullBuffer{.bytes = info->size, .address = next_address};
    next_address += (info->size + 0xffff) / 0x10000 * 0x10000;
    Buffers()[made->address] = made;
    *buffer = ToHandle<VkBuffer>(made);
    return VK_SUCCESS;
  }
  static void DestroyBuffer(VkDevice, VkBuffer buffer, const VkAllocationCallbacks*) {
    auto* made = FromHandle<NullBuffer>(buffer);
    if (made == nullptr) return;
    Buffers().erase(made->address);
    delete made;
  }
  static void GetRequirements(VkDevice, VkBuffer buffer, VkMemoryRequirements* requirements) {
    *requirements = {FromHandle<NullBuffer>(buffer)->bytes, 4096, 1};
  }
  static VkResult AllocateMemory(VkDevice, const VkMemoryAllocateInfo* info,
                                 const VkAllocationCallbacks*, VkDeviceMemory* memory) {
    *memory = ToHandle<VkDeviceMemory>(new NullMemory{.bytes = info->allocationSize});
    return VK_SUCCESS;
  }
  static void FreeMemory(VkDevice, VkDeviceMemory memory, const VkAllocationCallbacks*) {
    auto* made = FromHandle<NullMemory>(memory);
    if (made == nullptr) return;
    if (made->mapped != nullptr) ::munmap(made->mapped, made->bytes);
    delete made;
  }
  static VkResult BindMemory(VkDevice, VkBuffer buffer, VkDeviceMemory memory, VkDeviceSize) {
    FromHandle<NullBuffer>(buffer)->memory = FromHandle<NullMemory>(memory);
    return VK_SUCCESS;
  }
  static VkResult MapMemory(VkDevice, VkDeviceMemory memory, VkDeviceSize, VkDeviceSize,
                            VkMemoryMapFlags, void** data) {
    auto* made = FromHandle<NullMemory>(memory);
    if (made->mapped == nullptr) {
      void* pages = ::mmap(nullptr, made->bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (pages == MAP_FAILED) return VK_ERROR_MEMORY_MAP_FAILED;
      made->mapped = static_cast<std::byte*>(pages);
    }
    *data = made->mapped;
    return VK_SUCCESS;
  }
  static VkDeviceAddress GetAddress(VkDevice, const VkBufferDeviceAddressInfo* info) {
    return FromHandle<NullBuffer>(info->buffer)->address;
  }
  static VkResult GetHostPointerProperties(VkDevice, VkExternalMemoryHandleTypeFlagBits,
                                           const void*,
                                           VkMemoryHostPointerPropertiesEXT* properties) {
    properties->memoryTypeBits = 1;
    return VK_SUCCESS;
  }

  // Commands.

  static VkResult CreateCommandPool(VkDevice, const VkCommandPoolCreateInfo*,
                                    const VkAllocationCallbacks*, VkCommandPool* pool) {
    *pool = ToHandle<VkCommandPool>(new NullCommandPool);
    return VK_SUCCESS;
  }
  static void DestroyCommandPool(VkDevice, VkCommandPool pool, const VkAllocationCallbacks*) {
    delete FromHandle<NullCommandPool>(pool);
  }
  static VkResult AllocateCommands(VkDevice, const VkCommandBufferAllocateInfo* info,
                                   VkCommandBuffer* commands) {
    auto* pool = FromHandle<NullCommandPool>(info->commandPool);
    for (uint32_t i = 0; i < info->commandBufferCount; ++i) {
      pool->commands.push_back(std::make_unique<NullCommands>());
      commands[i] = ToHandle<VkCommandBuffer>(pool->commands.back().get());
    }
    return VK_SUCCESS;
  }
  static void FreeCommands(VkDevice, VkCommandPool, uint32_t, const VkCommandBuffer*) {}
  static VkResult Begin(VkCommandBuffer, const VkCommandBufferBeginInfo*) { return VK_SUCCESS; }
  static VkResult End(VkCommandBuffer) { return VK_SUCCESS; }
  static void Bind(VkCommandBuffer commands, VkPipelineBindPoint, VkPipeline pipeline) {
    FromHandle<NullCommands>(commands)->bound = reinterpret_cast<size_t>(pipeline) - 1;
  }
  static void Push(VkCommandBuffer commands, VkPipelineLayout, VkShaderStageFlags, uint32_t offset,
                   uint32_t bytes, const void* values) {
    std::memcpy(FromHandle<NullCommands>(commands)->push.data() + offset, values, bytes);
  }
  static void CmdDispatch(VkCommandBuffer handle, uint32_t x, uint32_t y, uint32_t) {
    auto& commands = *FromHandle<NullCommands>(handle);
    commands.dispatches.push_back({.pipeline = commands.bound,
                                   .push = commands.push,
                                   .groups_x = x,
                                   .groups_y = y,
                                   .after_barrier = commands.barrier});
    commands.barrier = false;
    ++Driver().pipelines_[commands.bound].dispatches;
  }
  static void Barrier(VkCommandBuffer commands, const VkDependencyInfo*) {
    FromHandle<NullCommands>(commands)->barrier = true;
  }
  static void Copy(VkCommandBuffer, VkBuffer, VkBuffer, uint32_t, const VkBufferCopy*) {}
  static void Fill(VkCommandBuffer, VkBuffer, VkDeviceSize, VkDeviceSize, uint32_t) {}
  static void Update(VkCommandBuffer, VkBuffer, VkDeviceSize, VkDeviceSize, const void*) {}
  static void ResetQueries(VkCommandBuffer, VkQueryPool, uint32_t, uint32_t) {}
  static void Timestamp(VkCommandBuffer handle, VkPipelineStageFlags2, VkQueryPool pool,
                        uint32_t index) {
    auto& commands = *FromHandle<NullCommands>(handle);
    commands.timestamps.push_back(
        {commands.dispatches.size(), FromHandle<NullQueries>(pool), index});
  }
  static void CopyQueries(VkCommandBuffer, VkQueryPool, uint32_t, uint32_t, VkBuffer, VkDeviceSize,
                          VkDeviceSize, VkQueryResultFlags) {}
  static VkResult CreateQueries(VkDevice, const VkQueryPoolCreateInfo* info,
                                const VkAllocationCallbacks*, VkQueryPool* pool) {
    *pool = ToHandle<VkQueryPool>(new NullQueries{std::vector<uint64_t>(info->queryCount)});
    return VK_SUCCESS;
  }
  static void DestroyQueries(VkDevice, VkQueryPool pool, const VkAllocationCallbacks*) {
    delete FromHandle<NullQueries>(pool);
  }
  static VkResult ReadQueries(VkDevice, VkQueryPool pool, uint32_t first, uint32_t count,
                              size_t bytes, void* data, VkDeviceSize, VkQueryResultFlags) {
    const auto ticks =
        std::as_bytes(std::span(FromHandle<NullQueries>(pool)->ticks).subspan(first, count));
    std::memcpy(data, ticks.data(), std::min(bytes, ticks.size()));
    return VK_SUCCESS;
  }

  // The queue: everything is over at once.

  static VkResult CreateSemaphore(VkDevice, const VkSemaphoreCreateInfo*,
                                  const VkAllocationCallbacks*, VkSemaphore* semaphore) {
    *semaphore = ToHandle<VkSemaphore>(new NullSemaphore);
    return VK_SUCCESS;
  }
  static void DestroySemaphore(VkDevice, VkSemaphore semaphore, const VkAllocationCallbacks*) {
    delete FromHandle<NullSemaphore>(semaphore);
  }
  // Lets the clock pass the commands, and writes their timestamps.
  static void Advance(const NullCommands& commands) {
    auto timestamp = commands.timestamps.begin();
    for (size_t i = 0; i <= commands.dispatches.size(); ++i) {
      for (; timestamp != commands.timestamps.end() && timestamp->dispatches == i; ++timestamp) {
        timestamp->pool->ticks.at(timestamp->index) =
            static_cast<uint64_t>(std::llround(Driver().now_ * 1e9));
      }
      if (i == commands.dispatches.size() || !Driver().clock_) continue;
      Driver().now_ += Driver().clock_(commands.dispatches[i]);
    }
  }
  static VkResult Submit(VkQueue, uint32_t count, const VkSubmitInfo2* submits, VkFence) {
    std::vector<Dispatch> dispatches;
    const double begin = Driver().now_;
    for (const VkSubmitInfo2& submit : std::span(submits, count)) {
      for (const auto& info :
           std::span(submit.pCommandBufferInfos, submit.commandBufferInfoCount)) {
        const auto& commands = *FromHandle<NullCommands>(info.commandBuffer);
        Advance(commands);
        dispatches.insert(dispatches.end(), commands.dispatches.begin(), commands.dispatches.end());
      }
      for (const auto& signal :
           std::span(submit.pSignalSemaphoreInfos, submit.signalSemaphoreInfoCount)) {
        FromHandle<NullSemaphore>(signal.semaphore)->value = signal.value;
      }
    }
    if (!dispatches.empty()) Driver().submission_seconds_.push_back(Driver().now_ - begin);
    for (const Dispatch& dispatch : dispatches) {
      const KernelId kernel = Driver().pipelines_[dispatch.pipeline].kernel;
      if (kernel != KernelId::kCoopProbe && kernel != KernelId::kNarrowProbe) continue;
      uint64_t address = 0;
      std::memcpy(&address, dispatch.push.data(), sizeof(address));
      const std::span<std::byte> words = MappedFrom(address);
      if (words.empty()) return VK_ERROR_DEVICE_LOST;
      AnswerProbe(Driver().chip_, kernel, reinterpret_cast<uint32_t*>(words.data()));
    }
    if (!dispatches.empty()) Driver().submitted_ = std::move(dispatches);
    return VK_SUCCESS;
  }
  static VkResult Wait(VkDevice, const VkSemaphoreWaitInfo*, uint64_t) { return VK_SUCCESS; }
  static VkResult GetValue(VkDevice, VkSemaphore semaphore, uint64_t* value) {
    *value = FromHandle<NullSemaphore>(semaphore)->value;
    return VK_SUCCESS;
  }
  static VkResult WaitIdle(VkDevice) { return VK_SUCCESS; }
};

PFN_vkVoidFunction QueueFunction(std::string_view name) {
#define TANDEM_OWN(vulkan_name, function) \
  if (name == "vk" #vulkan_name)          \
    return reinterpret_cast<PFN_vkVoidFunction>(&QueueEntries::function);
  TANDEM_OWN(CreateBuffer, CreateBuffer)
  TANDEM_OWN(DestroyBuffer, DestroyBuffer)
  TANDEM_OWN(GetBufferMemoryRequirements, GetRequirements)
  TANDEM_OWN(AllocateMemory, AllocateMemory)
  TANDEM_OWN(FreeMemory, FreeMemory)
  TANDEM_OWN(BindBufferMemory, BindMemory)
  TANDEM_OWN(MapMemory, MapMemory)
  TANDEM_OWN(GetBufferDeviceAddress, GetAddress)
  TANDEM_OWN(GetMemoryHostPointerPropertiesEXT, GetHostPointerProperties)
  TANDEM_OWN(CreateCommandPool, CreateCommandPool)
  TANDEM_OWN(DestroyCommandPool, DestroyCommandPool)
  TANDEM_OWN(AllocateCommandBuffers, AllocateCommands)
  TANDEM_OWN(FreeCommandBuffers, FreeCommands)
  TANDEM_OWN(BeginCommandBuffer, Begin)
  TANDEM_OWN(EndCommandBuffer, End)
  TANDEM_OWN(CmdBindPipeline, Bind)
  TANDEM_OWN(CmdPushConstants, Push)
  TANDEM_OWN(CmdDispatch, CmdDispatch)
  TANDEM_OWN(CmdPipelineBarrier2, Barrier)
  TANDEM_OWN(CmdCopyBuffer, Copy)
  TANDEM_OWN(CmdFillBuffer, Fill)
  TANDEM_OWN(CmdUpdateBuffer, Update)
  TANDEM_OWN(CmdResetQueryPool, ResetQueries)
  TANDEM_OWN(CmdWriteTimestamp2, Timestamp)
  TANDEM_OWN(CmdCopyQueryPoolResults, CopyQueries)
  TANDEM_OWN(CreateQueryPool, CreateQueries)
  TANDEM_OWN(DestroyQueryPool, DestroyQueries)
  TANDEM_OWN(GetQueryPoolResults, ReadQueries)
  TANDEM_OWN(CreateSemaphore, CreateSemaphore)
  TANDEM_OWN(DestroySemaphore, DestroySemaphore)
  TANDEM_OWN(QueueSubmit2, Submit)
  TANDEM_OWN(WaitSemaphores, Wait)
  TANDEM_OWN(GetSemaphoreCounterValue, GetValue)
  TANDEM_OWN(DeviceWaitIdle, WaitIdle)
#undef TANDEM_OWN
  return nullptr;
}

}  // namespace tandem::report
