#include "tools/kernel_report/null_driver.h"

#include <dlfcn.h>
#include <vulkan/vulkan.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "absl/strings/str_format.h"
#include "tools/kernel_report/null_objects.h"

namespace tandem::report {
namespace {

using gpu::KernelId;

// RADV's own functions.
struct Radv {
  PFN_vkGetInstanceProcAddr get = nullptr;
  VkInstance instance = VK_NULL_HANDLE;
  VkDevice device = VK_NULL_HANDLE;

  template <typename Function>
  Function Of(const char* name) const {
    return reinterpret_cast<Function>(get(instance, name));
  }
};
Radv& TheRadv() {
  static Radv radv;
  return radv;
}

constexpr std::string_view kHostImport = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME;
bool IsHostImport(const VkExtensionProperties& extension) {
  return extension.extensionName == kHostImport;
}

constexpr uint64_t kHeapBytes = uint64_t{64} << 30;
std::map<VkShaderModule, KernelId>& Modules() {
  static std::map<VkShaderModule, KernelId> modules;
  return modules;
}

}  // namespace

// Entry points of the device and its pipelines; a struct, so that they reach the driver's members.
struct DriverEntries {
  static NullDriver& Driver() { return NullDriver::Get(); }

  // Instance and physical device.

  static VkResult EnumerateDeviceExtensions(VkPhysicalDevice device, const char* layer,
                                            uint32_t* count, VkExtensionProperties* properties) {
    const auto ask = TheRadv().Of<PFN_vkEnumerateDeviceExtensionProperties>(
        "vkEnumerateDeviceExtensionProperties");
    uint32_t all = 0;
    ask(device, layer, &all, nullptr);
    std::vector<VkExtensionProperties> list(all);
    ask(device, layer, &all, list.data());
    // Asking the null device for its budget crashes.
    std::erase_if(list, [](const VkExtensionProperties& extension) {
      return std::string_view(extension.extensionName) == VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
    });
    // The null device cannot import memory, this driver can: weights are not copied then.
    if (std::ranges::none_of(list, IsHostImport)) {
      VkExtensionProperties& import = list.emplace_back();
      kHostImport.copy(import.extensionName, sizeof(import.extensionName) - 1);
      import.specVersion = 1;
    }
    if (properties != nullptr) std::copy_n(list.begin(), *count, properties);
    *count = static_cast<uint32_t>(list.size());
    return VK_SUCCESS;
  }

  static void GetProperties(VkPhysicalDevice device, VkPhysicalDeviceProperties2* properties) {
    TheRadv().Of<PFN_vkGetPhysicalDeviceProperties2>("vkGetPhysicalDeviceProperties2")(device,
                                                                                       properties);
    const Chip& chip = Driver().chip_;
    if (!chip.own_compiler) {
      properties->properties.limits.maxComputeSharedMemorySize = 48 << 10;
      chip.device_name.copy(properties->properties.deviceName,
                            VK_MAX_PHYSICAL_DEVICE_NAME_SIZE - 1);
      properties->properties.deviceName[chip.device_name.size()] = '\0';
    }
    properties->properties.limits.timestampPeriod = 1;  // the driver's own clock
    // Weights are imported then, not copied: nothing reads them.
    properties->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
    for (auto* link = static_cast<VkBaseOutStructure*>(properties->pNext); link != nullptr;
         link = link->pNext) {
      if (link->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT) {
        reinterpret_cast<VkPhysicalDeviceExternalMemoryHostPropertiesEXT*>(link)
            ->minImportedHostPointerAlignment = 4096;
      }
      if (link->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES) continue;
      Driver().version_ = reinterpret_cast<VkPhysicalDeviceVulkan12Properties*>(link)->driverInfo;
    }
  }

  // One heap of everything, as unified memory is.
  static void GetMemory(VkPhysicalDevice, VkPhysicalDeviceMemoryProperties2* properties) {
    VkPhysicalDeviceMemoryProperties& memory = properties->memoryProperties;
    memory = {};
    memory.memoryHeapCount = 1;
    memory.memoryHeaps[0] = {kHeapBytes, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
    memory.memoryTypeCount = 1;
    memory.memoryTypes[0] = {
        VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
            VK_MEMORY_PROPERTY_HOST_COHERENT_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
        0};
  }

  static VkResult GetMatrices(VkPhysicalDevice device, uint32_t* count,
                              VkCooperativeMatrixPropertiesKHR* properties) {
    if (Driver().chip_.own_compiler) {
      return TheRadv().Of<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR>(
          "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR")(device, count, properties);
    }
    // Those of NVIDIA's that the kernels look for.
    constexpr auto kHalf = VK_COMPONENT_TYPE_FLOAT16_KHR;
    constexpr auto kFloat = VK_COMPONENT_TYPE_FLOAT32_KHR;
    constexpr auto kByte = VK_COMPONENT_TYPE_SINT8_KHR;
    constexpr auto kSum = VK_COMPONENT_TYPE_SINT32_KHR;
    const VkCooperativeMatrixPropertiesKHR list[] = {
        {VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR, nullptr, 16, 16, 16, kHalf, kHalf,
         kFloat, kFloat, VK_FALSE, VK_SCOPE_SUBGROUP_KHR},
        {VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR, nullptr, 16, 8, 32, kByte, kByte,
         kSum, kSum, VK_FALSE, VK_SCOPE_SUBGROUP_KHR}};
    if (properties != nullptr) std::copy_n(list, std::min<uint32_t>(*count, 2), properties);
    *count = 2;
    return VK_SUCCESS;
  }

  static VkResult CreateDevice(VkPhysicalDevice physical, const VkDeviceCreateInfo* info,
                               const VkAllocationCallbacks* allocator, VkDevice* device) {
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR statistics = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR};
    statistics.pNext = const_cast<void*>(info->pNext);
    statistics.pipelineExecutableInfo = VK_TRUE;
    std::vector<const char*> extensions(
        info->ppEnabledExtensionNames, info->ppEnabledExtensionNames + info->enabledExtensionCount);
    std::erase_if(extensions, [](const char* name) { return name == kHostImport; });
    extensions.push_back(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
    VkDeviceCreateInfo wanted = *info;
    wanted.pNext = &statistics;
    wanted.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
    wanted.ppEnabledExtensionNames = extensions.data();
    const VkResult result =
        TheRadv().Of<PFN_vkCreateDevice>("vkCreateDevice")(physical, &wanted, allocator, device);
    if (result == VK_SUCCESS) TheRadv().device = *device;
    return result;
  }

  // Pipelines.

  static VkResult CreateShaderModule(VkDevice device, const VkShaderModuleCreateInfo* info,
                                     const VkAllocationCallbacks* allocator,
                                     VkShaderModule* module) {
    const VkResult result = TheRadv().Of<PFN_vkCreateShaderModule>("vkCreateShaderModule")(
        device, info, allocator, module);
    if (result != VK_SUCCESS) return result;
    for (int id = 0; id < gpu::kNumKernels; ++id) {
      if (gpu::Traits(static_cast<KernelId>(id)).spirv.data() == info->pCode) {
        Modules()[*module] = static_cast<KernelId>(id);
      }
    }
    return result;
  }

  static void ReadStatistics(VkDevice device, VkPipeline pipeline, CompiledPipeline& compiled) {
    const VkPipelineExecutableInfoKHR info = {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
                                              nullptr, pipeline, 0};
    const auto statistics = TheRadv().Of<PFN_vkGetPipelineExecutableStatisticsKHR>(
        "vkGetPipelineExecutableStatisticsKHR");
    uint32_t count = 0;
    statistics(device, &info, &count, nullptr);
    std::vector<VkPipelineExecutableStatisticKHR> values(
        count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR});
    statistics(device, &info, &count, values.data());
    for (const auto& value : values) compiled.statistics[value.name] = value.value.u64;

    const auto texts = TheRadv().Of<PFN_vkGetPipelineExecutableInternalRepresentationsKHR>(
        "vkGetPipelineExecutableInternalRepresentationsKHR");
    texts(device, &info, &count, nullptr);
    std::vector<VkPipelineExecutableInternalRepresentationKHR> forms(
        count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR});
    texts(device, &info, &count, forms.data());
    std::vector<std::string> contents(count);
    for (uint32_t i = 0; i < count; ++i) {
      contents[i].resize(forms[i].dataSize);
      forms[i].pData = contents[i].data();
    }
    texts(device, &info, &count, forms.data());
    for (uint32_t i = 0; i < count; ++i) {
      if (std::string_view(forms[i].name).find("ssembly") == std::string_view::npos) continue;
      // Up to its terminating zero.
      compiled.assembly = contents[i].c_str();  // NOLINT(readability-redundant-string-cstr)
    }
  }

  static VkResult CreatePipelines(VkDevice device, VkPipelineCache, uint32_t count,
                                  const VkComputePipelineCreateInfo* infos,
                                  const VkAllocationCallbacks* allocator, VkPipeline* pipelines) {
    for (uint32_t i = 0; i < count; ++i) {
      VkComputePipelineCreateInfo info = infos[i];
      const auto module = Modules().find(info.stage.module);
      if (module == Modules().end()) return VK_ERROR_INITIALIZATION_FAILED;
      CompiledPipeline compiled{.kernel = module->second};
      const VkSpecializationInfo& constants = *info.stage.pSpecializationInfo;
      for (uint32_t e = 0; e < constants.mapEntryCount; ++e) {
        const VkSpecializationMapEntry& entry = constants.pMapEntries[e];
        uint32_t value = 0;
        std::memcpy(&value, static_cast<const std::byte*>(constants.pData) + entry.offset, 4);
        compiled.constants[entry.constantID] = value;
      }
      const auto [place, added] = Driver().index_.try_emplace({compiled.kernel, compiled.constants},
                                                              Driver().pipelines_.size());
      // 0 is no handle.  NOLINTNEXTLINE(performance-no-int-to-ptr)
      pipelines[i] = ToHandle<VkPipeline>(reinterpret_cast<std::byte*>(place->second + 1));
      if (!added) continue;
      // Only NVIDIA has matrices of eight columns.
      const bool foreign =
          compiled.kernel == KernelId::kCoopMatvec || compiled.kernel == KernelId::kNarrowProbe;
      if (!foreign) {
        info.flags |= VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR |
                      VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
        VkPipeline made = VK_NULL_HANDLE;
        const VkResult result = TheRadv().Of<PFN_vkCreateComputePipelines>(
            "vkCreateComputePipelines")(device, VK_NULL_HANDLE, 1, &info, allocator, &made);
        if (result != VK_SUCCESS) return result;
        compiled.compiled = true;
        ReadStatistics(device, made, compiled);
        TheRadv().Of<PFN_vkDestroyPipeline>("vkDestroyPipeline")(device, made, allocator);
      }
      Driver().pipelines_.push_back(std::move(compiled));
    }
    return VK_SUCCESS;
  }

  static void DestroyPipeline(VkDevice, VkPipeline, const VkAllocationCallbacks*) {}
  static void DestroyDevice(VkDevice, const VkAllocationCallbacks*) {}  // the null device crashes

  static PFN_vkVoidFunction GetDeviceFunction(VkDevice device, const char* name) {
    if (const PFN_vkVoidFunction own = Own(name)) return own;
    return TheRadv().Of<PFN_vkGetDeviceProcAddr>("vkGetDeviceProcAddr")(device, name);
  }

  static PFN_vkVoidFunction Own(std::string_view name) {
#define TANDEM_OWN(vulkan_name, function) \
  if (name == "vk" #vulkan_name) return reinterpret_cast<PFN_vkVoidFunction>(&function);
    TANDEM_OWN(EnumerateDeviceExtensionProperties, EnumerateDeviceExtensions)
    TANDEM_OWN(GetPhysicalDeviceProperties2, GetProperties)
    TANDEM_OWN(GetPhysicalDeviceMemoryProperties2, GetMemory)
    TANDEM_OWN(GetPhysicalDeviceCooperativeMatrixPropertiesKHR, GetMatrices)
    TANDEM_OWN(CreateDevice, CreateDevice)
    TANDEM_OWN(GetDeviceProcAddr, GetDeviceFunction)
    TANDEM_OWN(CreateShaderModule, CreateShaderModule)
    TANDEM_OWN(CreateComputePipelines, CreatePipelines)
    TANDEM_OWN(DestroyPipeline, DestroyPipeline)
    TANDEM_OWN(DestroyDevice, DestroyDevice)
#undef TANDEM_OWN
    return QueueFunction(name);
  }
};

NullDriver& NullDriver::Get() {
  static NullDriver driver;
  return driver;
}

absl::Status NullDriver::Open(const Chip& chip, const std::string& library) {
  Radv& radv = TheRadv();
  if (radv.get == nullptr) {
    void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrFormat("%s cannot be loaded: %s", library, ::dlerror()));
    }
    radv.get =
        reinterpret_cast<PFN_vkGetInstanceProcAddr>(::dlsym(handle, "vk_icdGetInstanceProcAddr"));
    if (radv.get == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrFormat("%s is no Vulkan driver: it has no vk_icdGetInstanceProcAddr", library));
    }
  }
  // Read when devices are listed, and when a pipeline is compiled.
  ::setenv("RADV_FORCE_FAMILY", std::string(chip.family).c_str(), 1);
  ::setenv("MESA_SHADER_CACHE_DISABLE", "true", 1);
  chip_ = chip;
  pipelines_.clear();
  index_.clear();
  submitted_.clear();
  clock_ = nullptr;
  submission_seconds_.clear();
  return absl::OkStatus();
}

}  // namespace tandem::report

extern "C" {

VKAPI_ATTR VkResult VKAPI_CALL vkCreateInstance(const VkInstanceCreateInfo* info,
                                                const VkAllocationCallbacks* allocator,
                                                VkInstance* instance) {
  auto& radv = tandem::report::TheRadv();
  if (radv.get == nullptr) return VK_ERROR_INITIALIZATION_FAILED;
  const auto create =
      reinterpret_cast<PFN_vkCreateInstance>(radv.get(VK_NULL_HANDLE, "vkCreateInstance"));
  const VkResult result = create(info, allocator, instance);
  if (result == VK_SUCCESS) radv.instance = *instance;
  return result;
}

VKAPI_ATTR VkResult VKAPI_CALL vkEnumerateInstanceLayerProperties(uint32_t* count,
                                                                  VkLayerProperties*) {
  *count = 0;
  return VK_SUCCESS;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance,
                                                               const char* name) {
  if (const PFN_vkVoidFunction own = tandem::report::DriverEntries::Own(name)) return own;
  return tandem::report::TheRadv().get(instance, name);
}

}  // extern "C"
