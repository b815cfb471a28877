// What the kernel's amdgpu driver says of the Radeons that are emulated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "services/gpu_worker/emulator/isa/dispatch.h"

namespace tandem::rdna {

struct Chip {
  const char* name;            // "780M"
  const char* driver_name;     // as RADV_FORCE_FAMILY and kernel_report have it: "phoenix"
  const char* marketing_name;  // what Vulkan shows
  Gfx gfx;
  uint32_t family, external_revision;  // by these RADV knows the chip
  uint32_t pci_device, pci_revision;
  uint32_t gfx_version;  // of the IP discovery table: major << 16 | minor << 8 | revision
  uint32_t shader_engines, cus_per_array;  // two arrays an engine
  uint32_t max_clock_khz, memory_clock_khz, memory_bits;
  uint32_t l2_blocks, l2_kib, mall_mib;
  uint64_t vram_bytes, gtt_bytes;  // carved out at start; lent by the system

  uint32_t cus() const { return shader_engines * 2 * cus_per_array; }
};

// The first one is the default: the 780M.
const Chip& DefaultChip();
// By either name, in any case; nullptr: unknown.
const Chip* FindChip(std::string_view name);
// "780M, 890M, 8060S"
std::string ChipNames();

// One rate for all of them: ticks of 10 ns.
inline constexpr uint32_t kCounterKhz = 100'000;

}  // namespace tandem::rdna
