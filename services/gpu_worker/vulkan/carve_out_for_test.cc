#include "services/gpu_worker/vulkan/carve_out_for_test.h"

#include <dlfcn.h>
#include <vulkan/vulkan.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "services/common/base/check.h"

namespace tandem::vulkan {
namespace {

constexpr VkMemoryPropertyFlags kLocalBit = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
constexpr VkMemoryPropertyFlags kVisibleBits =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
constexpr VkMemoryPropertyFlags kCachedBit = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
constexpr VkMemoryType kShownTypes[] = {{kLocalBit, 0},
                                        {kVisibleBits, 1},
                                        {kLocalBit | kVisibleBits, 0},
                                        {kVisibleBits | kCachedBit, 1}};
constexpr uint32_t kAllShownTypes = 0b1111;

}  // namespace

CarveOutMemory& CarveOutMemory::Get() {
  static CarveOutMemory memory;
  return memory;
}

void CarveOutMemory::Reset(uint64_t carve_out_bytes, uint64_t lent_bytes, bool tells_budget) {
  TANDEM_CHECK(heaps_[0].used == 0 && heaps_[1].used == 0);
  tells_budget_ = tells_budget;
  heaps_ = {CarveOutHeap{.bytes = carve_out_bytes}, CarveOutHeap{.bytes = lent_bytes}};
}

// The entry points that differ from the machine's.  Single-thread, as the worker is.
struct CarveOutDriver {
  static void VKAPI_CALL GetMemoryProperties(VkPhysicalDevice device,
                                             VkPhysicalDeviceMemoryProperties2* properties) {
    own_memory_properties(device, properties);
    VkPhysicalDeviceMemoryProperties& memory = properties->memoryProperties;
    CarveOutMemory& shown = CarveOutMemory::Get();
    constexpr VkMemoryPropertyFlags kWanted = kLocalBit | kVisibleBits | kCachedBit;
    shown.works_ =
        memory.memoryTypeCount > 0 && (memory.memoryTypes[0].propertyFlags & kWanted) == kWanted;
    memory.memoryTypeCount = 4;
    std::copy_n(kShownTypes, 4, memory.memoryTypes);
    memory.memoryHeapCount = 2;
    memory.memoryHeaps[0] = {shown.heaps_[0].bytes, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
    memory.memoryHeaps[1] = {shown.heaps_[1].bytes, 0};
    for (auto* next = static_cast<VkBaseOutStructure*>(properties->pNext); next != nullptr;
         next = next->pNext) {
      if (next->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT) continue;
      auto* budget = reinterpret_cast<VkPhysicalDeviceMemoryBudgetPropertiesEXT*>(next);
      for (size_t heap = 0; heap < 2; ++heap) {
        budget->heapBudget[heap] = shown.heaps_[heap].bytes;
        budget->heapUsage[heap] = shown.heaps_[heap].used;
      }
    }
  }

  static VkResult VKAPI_CALL EnumerateExtensions(VkPhysicalDevice device, const char* layer,
                                                 uint32_t* count,
                                                 VkExtensionProperties* properties) {
    uint32_t own_count = 0;
    VkResult result = own_extensions(device, layer, &own_count, nullptr);
    std::vector<VkExtensionProperties> all(own_count);
    if (result == VK_SUCCESS) result = own_extensions(device, layer, &own_count, all.data());
    if (result != VK_SUCCESS) return result;
    std::erase_if(all, [](const VkExtensionProperties& extension) {
      return std::string_view(extension.extensionName) == VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
    });
    if (CarveOutMemory::Get().tells_budget_)
      all.push_back({VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, 1});
    if (properties != nullptr) {
      TANDEM_CHECK(*count >= all.size());
      std::ranges::copy(all, properties);
    }
    *count = static_cast<uint32_t>(all.size());
    return VK_SUCCESS;
  }

  static void VKAPI_CALL GetBufferRequirements(VkDevice device, VkBuffer buffer,
                                               VkMemoryRequirements* requirements) {
    own_buffer_requirements(device, buffer, requirements);
    requirements->memoryTypeBits = kAllShownTypes;
  }

  static VkResult VKAPI_CALL Allocate(VkDevice device, const VkMemoryAllocateInfo* info,
                                      const VkAllocationCallbacks* callbacks,
                                      VkDeviceMemory* memory) {
    CarveOutHeap& heap = CarveOutMemory::Get().heaps_[kShownTypes[info->memoryTypeIndex].heapIndex];
    if (info->allocationSize > heap.bytes - heap.used) {
      ++heap.refused;
      return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    VkMemoryAllocateInfo own = *info;
    own.memoryTypeIndex = 0;
    const VkResult result = own_allocate(device, &own, callbacks, memory);
    if (result != VK_SUCCESS) return result;
    heap.used += info->allocationSize;
    heap.most_used = std::max(heap.most_used, heap.used);
    allocated[*memory] = {&heap, info->allocationSize};
    return result;
  }

  static void VKAPI_CALL Free(VkDevice device, VkDeviceMemory memory,
                              const VkAllocationCallbacks* callbacks) {
    own_free(device, memory, callbacks);
    const auto found = allocated.find(memory);
    if (found == allocated.end()) return;
    found->second.first->used -= found->second.second;
    allocated.erase(found);
  }

  static PFN_vkVoidFunction VKAPI_CALL GetDeviceFunction(VkDevice device, const char* name) {
    return Replace(name, own_get_device_function(device, name));
  }

  // The function to call for `name`, where the machine's is `own`.
  static PFN_vkVoidFunction Replace(std::string_view name, PFN_vkVoidFunction own) {
    const auto replace = [own](auto& kept, auto* with) {
      kept = reinterpret_cast<std::remove_reference_t<decltype(kept)>>(own);
      return reinterpret_cast<PFN_vkVoidFunction>(with);
    };
    if (name == "vkGetPhysicalDeviceMemoryProperties2") {
      return replace(own_memory_properties, &GetMemoryProperties);
    }
    if (name == "vkEnumerateDeviceExtensionProperties") {
      return replace(own_extensions, &EnumerateExtensions);
    }
    if (name == "vkGetBufferMemoryRequirements") {
      return replace(own_buffer_requirements, &GetBufferRequirements);
    }
    if (name == "vkAllocateMemory") return replace(own_allocate, &Allocate);
    if (name == "vkFreeMemory") return replace(own_free, &Free);
    if (name == "vkGetDeviceProcAddr") return replace(own_get_device_function, &GetDeviceFunction);
    return own;
  }

  static inline PFN_vkGetPhysicalDeviceMemoryProperties2 own_memory_properties = nullptr;
  static inline PFN_vkEnumerateDeviceExtensionProperties own_extensions = nullptr;
  static inline PFN_vkGetBufferMemoryRequirements own_buffer_requirements = nullptr;
  static inline PFN_vkAllocateMemory own_allocate = nullptr;
  static inline PFN_vkFreeMemory own_free = nullptr;
  static inline PFN_vkGetDeviceProcAddr own_get_device_function = nullptr;
  static inline std::map<VkDeviceMemory, std::pair<CarveOutHeap*, uint64_t>> allocated;
};

}  // namespace tandem::vulkan

// In the place of the loader's, for this program's own calls.
extern "C" [[gnu::visibility("hidden")]] VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL
vkGetInstanceProcAddr(VkInstance instance, const char* name) {
  static const auto own =
      reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(RTLD_NEXT, "vkGetInstanceProcAddr"));
  TANDEM_CHECK(own != nullptr);
  return tandem::vulkan::CarveOutDriver::Replace(name, own(instance, name));
}
