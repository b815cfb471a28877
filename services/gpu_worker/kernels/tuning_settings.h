// The numbers of Tuning that measuring may change, each with what it may become.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "services/gpu_worker/kernels/tuning.h"
#include "services/gpu_worker/vulkan/device_info.h"

namespace tandem::gpu {

struct TuningSetting {
  std::string name;  // "matmul_columns", "tile2_groups": a table's key
  std::function<uint32_t&(Tuning&)> of;
  std::vector<uint32_t> values;  // that the kernels take on this device
  std::vector<uint32_t> rows;    // of the steps that it is judged by
};

// Those that have an effect on the device, the most important first.  `tuning`: what holds before.
std::vector<TuningSetting> TuningSettings(const vulkan::DeviceInfo& info, const Tuning& tuning);

}  // namespace tandem::gpu
