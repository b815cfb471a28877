// Hand-made tuning of devices that are known by name; docs/tuning.md gives the reasons.
#pragma once

#include <string_view>

#include "services/gpu_worker/kernels/tuning.h"
#include "services/gpu_worker/vulkan/device_info.h"

namespace tandem::gpu {

struct ShippedTable {
  // "NVIDIA Hopper", "RDNA 3 (untested)"; empty: none for this device, general rules hold.
  std::string_view name;
  bool measured = false;  // on such a device; else inferred, and a first start measures
  // Changes what the general rules gave; null: they are right.
  void (*apply)(Tuning& tuning) = nullptr;
};

ShippedTable FindShippedTable(const vulkan::DeviceInfo& info);

}  // namespace tandem::gpu
