#include "services/gpu_worker/kernels/shipped_tables.h"

#include <algorithm>
#include <span>
#include <string_view>

namespace tandem::gpu {
namespace {

constexpr std::string_view kHopper[] = {"H100", "H200", "H800", "GH200"};
// RADV's names of RDNA 3 and 3.5, and AMD's own driver's of the integrated ones.
constexpr std::string_view kRdna3[] = {"GFX110", "GFX115", "NAVI31", "NAVI32", "NAVI33", "PHOENIX",
                                       "760M",   "780M",   "880M",   "890M",   "8050S",  "8060S"};

bool Contains(const vulkan::DeviceInfo& info, std::span<const std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    return info.name.find(name) != std::string::npos;
  });
}

void Hopper(Tuning& tuning) {
  tuning.phase_counters = 1;
  tuning.wide_norm_threads = 1024;
  tuning.norm_inputs = 1;
  tuning.norm_groups = 132;  // one for each processor
  tuning.matvec_rounds_few = 6;
  tuning.matvec_groups = 264;  // two for each of 132 processors: no more have their registers
  // 122 registers for heads of 128: a processor holds four workgroups, not three.
  tuning.decode.min_group = 16;
  tuning.decode.chunks_ahead = 4;
  tuning.decode.num_groups = 264;  // the fastest of six numbers
}

// Inferred, not measured: see docs/tuning.md.
void Rdna3(Tuning& tuning) {
  if (tuning.matvec_max_rows > 0) tuning.matvec_full_teams = 256;
  tuning.matrix.tiles = {
      // Weights of 16 bits do not fit the registers in chunks of 128.
      {.max_rows = 16, .min_bits = 16, .rows = 16, .groups = 96},
      {.max_rows = 16, .rows = 16, .chunk = 128, .groups = 96},
      {.max_rows = 32, .rows = 32, .groups = 96},
      {.rows = 64, .subgroups = 8, .groups = 80},
  };
}

}  // namespace

ShippedTable FindShippedTable(const vulkan::DeviceInfo& info) {
  if (info.type == VK_PHYSICAL_DEVICE_TYPE_CPU)
    return {.name = "software device", .measured = true};
  if (info.name.find("NVIDIA") != std::string::npos && Contains(info, kHopper)) {
    return {.name = "NVIDIA Hopper", .measured = true, .apply = &Hopper};
  }
  if (Contains(info, kRdna3)) return {.name = "RDNA 3 (untested)", .apply = &Rdna3};
  return {};
}

}  // namespace tandem::gpu
