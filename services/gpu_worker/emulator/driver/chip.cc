#include "services/gpu_worker/emulator/driver/chip.h"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace tandem::rdna {
namespace {

constexpr uint64_t kMib = 1 << 20, kGib = 1 << 30;
constexpr uint32_t kFamilyPhoenix = 148, kFamilyGfx1150 = 150;

// A laptop's 32 GiB with 512 MiB carved out for the GPU: the kernel lends half of the rest.  The
// 8060S is sold with 128 GiB.
constexpr Chip kChips[] = {
    {.name = "780M",
     .driver_name = "phoenix",
     .marketing_name = "AMD Radeon 780M (emulated)",
     .gfx = Gfx::k1103,
     .family = kFamilyPhoenix,
     .external_revision = 0x01,
     .pci_device = 0x15bf,
     .pci_revision = 0xc7,
     .gfx_version = 0x0b0001,
     .shader_engines = 1,
     .cus_per_array = 6,
     .max_clock_khz = 2'700'000,
     .memory_clock_khz = 2'800'000,
     .memory_bits = 128,
     .l2_blocks = 4,
     .l2_kib = 2048,
     .mall_mib = 0,
     .vram_bytes = 512 * kMib,
     .gtt_bytes = 15 * kGib},
    {.name = "890M",
     .driver_name = "gfx1150",
     .marketing_name = "AMD Radeon 890M (emulated)",
     .gfx = Gfx::k1150,
     .family = kFamilyGfx1150,
     .external_revision = 0x01,
     .pci_device = 0x150e,
     .pci_revision = 0xc1,
     .gfx_version = 0x0b0500,
     .shader_engines = 1,
     .cus_per_array = 8,
     .max_clock_khz = 2'900'000,
     .memory_clock_khz = 3'750'000,
     .memory_bits = 128,
     .l2_blocks = 4,
     .l2_kib = 2048,
     .mall_mib = 0,
     .vram_bytes = 512 * kMib,
     .gtt_bytes = 15 * kGib},
    {.name = "8060S",
     .driver_name = "gfx1151",
     .marketing_name = "AMD Radeon 8060S (emulated)",
     .gfx = Gfx::k1151,
     .family = kFamilyGfx1150,
     .external_revision = 0xc1,
     .pci_device = 0x1586,
     .pci_revision = 0xc1,
     .gfx_version = 0x0b0501,
     .shader_engines = 2,
     .cus_per_array = 10,
     .max_clock_khz = 2'900'000,
     .memory_clock_khz = 4'000'000,
     .memory_bits = 256,
     .l2_blocks = 8,
     .l2_kib = 2048,
     .mall_mib = 32,
     .vram_bytes = 512 * kMib,
     .gtt_bytes = 63 * kGib},
};

bool Same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

}  // namespace

const Chip& DefaultChip() { return kChips[0]; }

const Chip* FindChip(std::string_view name) {
  const auto chip = std::find_if(std::begin(kChips), std::end(kChips), [name](const Chip& c) {
    return Same(name, c.name) || Same(name, c.driver_name);
  });
  return chip == std::end(kChips) ? nullptr : chip;
}

std::string ChipNames() {
  std::string names;
  for (const Chip& chip : kChips) names += (names.empty() ? "" : ", ") + std::string(chip.name);
  return names;
}

}  // namespace tandem::rdna
