// What a Vulkan device is, as plain data: described, printed and chosen without a device.
#pragma once

#include <vulkan/vulkan_core.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gpu_worker/vulkan/matrix_shapes.h"

namespace tandem::vulkan {

struct MemoryHeap {
  uint64_t bytes = 0;
  bool device_local = false;
  uint64_t available_bytes = 0;  // at start, by VK_EXT_memory_budget where there is one
};

struct DeviceInfo {
  VkPhysicalDevice handle = VK_NULL_HANDLE;
  std::string name;
  std::string driver;  // "llvmpipe Mesa 22.3.6 (LLVM 15.0.6)"
  VkPhysicalDeviceType type = VK_PHYSICAL_DEVICE_TYPE_OTHER;
  uint32_t api_version = 0;
  uint32_t driver_version = 0;
  uint8_t uuid[VK_UUID_SIZE] = {};

  uint32_t compute_queue_family = 0;
  bool has_compute_queue = false;
  uint32_t timestamp_valid_bits = 0;
  float timestamp_period_ns = 0;

  uint32_t subgroup_size = 0;  // what pipelines are built for
  uint32_t min_subgroup_size = 0;
  uint32_t max_subgroup_size = 0;
  bool can_require_subgroup_size = false;
  uint32_t max_workgroup_invocations = 0;
  uint32_t max_shared_memory_bytes = 0;
  uint32_t max_push_constant_bytes = 0;
  bool fast_byte_dots = false;  // a dot product of four int8 is one instruction
  // Loop iterations of one invocation, all its loops together, after which the driver ends them
  // without a word (Mesa's llvmpipe: LP_MAX_TGSI_LOOP_ITERATIONS); 0: no limit.
  uint32_t max_loop_iterations = 0;
  // Kernels that read much do so through texel buffers: loads by address are many times slower
  // (Mesa's llvmpipe: a loop over the lanes for each).
  bool reads_texels = false;
  uint64_t max_texels = 0;  // of one texel buffer
  // Reading a query waits for everything submitted, also what came after it (Mesa's lavapipe).
  bool query_reads_wait = false;
  // Waits succeed when the device was lost with what was waited for: only a submission says so
  // (Mesa's RADV).
  bool waits_hide_loss = false;
  uint64_t max_allocation_bytes = 0;
  uint64_t max_buffer_bytes = 0;

  VkPhysicalDeviceMemoryProperties memory = {};
  std::vector<MemoryHeap> heaps;
  bool tells_budget = false;  // VK_EXT_memory_budget
  // The heaps are shares of one memory, and the device reads all of it equally fast (AMD's drivers
  // on integrated GPUs).
  bool heaps_share_memory = false;

  // Shapes of cooperative matrices (VK_KHR_cooperative_matrix) that kernels can use; may be empty.
  std::vector<MatrixShape> matrix_shapes;

  bool external_memory_host = false;
  uint64_t host_pointer_alignment = 0;
  bool external_memory_dmabuf = false;

  // What the device lacks of what the kernels need; empty: usable.
  std::vector<std::string> missing;

  // Whether the driver computes on the processor (Mesa's lavapipe).
  bool software() const { return type == VK_PHYSICAL_DEVICE_TYPE_CPU; }
  bool unified_memory() const { return type != VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU; }
};

// "discrete", "integrated", "virtual", "cpu", "other".
std::string_view DeviceTypeName(VkPhysicalDeviceType type);

// Several lines: name, driver, heaps, subgroups, limits, matrix units, imports, missing
// features.
std::string DescribeDevice(const DeviceInfo& info);

// Whether a driver that computes on the processor may be chosen.
enum class SoftwareUse : uint8_t { kNever, kLast, kOnly };

// Index into `devices`.  `selector`: an index, a part of a name (case ignored), or empty: the best
// usable one, discrete before integrated before virtual before cpu, then the lowest index.
// NOT_FOUND lists what there is; FAILED_PRECONDITION names what the chosen device lacks, or that
// `software` excludes it.
absl::StatusOr<size_t> ChooseDevice(const std::vector<DeviceInfo>& devices,
                                    std::string_view selector,
                                    SoftwareUse software = SoftwareUse::kLast);

}  // namespace tandem::vulkan
