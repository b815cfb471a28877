// The settings of Tuning that measurements may change, and their values.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "services/gpu_worker/kernels/tuning.h"
#include "services/gpu_worker/vulkan/device_info.h"

namespace tandem::gpu {

enum class TuningWork : uint8_t {
  kLayers,  // whole layers, over rows that see nothing
  kDecode,  // attention of decode rows: one row of a sequence
  kPrompt,  // attention of the rows of one sequence
  kHead,    // the head, with this many outputs
};

// A case that a setting is measured with.
struct TuningCase {
  TuningWork work = TuningWork::kLayers;
  uint32_t rows = 1;
  uint32_t depth = 0;  // positions before a sequence's first row; kDecode and kPrompt

  std::string Name() const;  // "r4", "d8@1024", "p512@1024", "h1"
  friend auto operator<=>(const TuningCase&, const TuningCase&) = default;
};

struct TuningSetting {
  std::string name;  // "matmul_columns", "tile2_groups": a table's key
  std::function<uint32_t&(Tuning&)> of;
  std::vector<uint32_t> values;  // that the kernels accept on this device
  std::vector<TuningCase> cases;
};

// The settings that have an effect on the device, the most important first.  `tuning`: the current
// values.
std::vector<TuningSetting> TuningSettings(const vulkan::DeviceInfo& info, const Tuning& tuning);

}  // namespace tandem::gpu
