// What libdrm's headers of Debian 12 do not have yet of the kernel's interface.
#pragma once

#include <amdgpu_drm.h>

#include <cstddef>
#include <cstdint>

namespace tandem::rdna::abi {

inline constexpr uint32_t kInfoMaxIbs = 0x22;
inline constexpr uint32_t kInfoGpuvmFault = 0x23;
inline constexpr size_t kIpTypes = 10;
// Until here older headers go as well.
inline constexpr size_t kOldDeviceInfoBytes =
    offsetof(drm_amdgpu_info_device, tcc_disabled_mask) + sizeof(uint64_t);

struct DeviceInfo {
  alignas(8) unsigned char old[kOldDeviceInfoBytes];
  uint64_t min_engine_clock, min_memory_clock;
  uint32_t tcp_cache_kib, num_sqc_per_wgp, sqc_data_cache_kib, sqc_inst_cache_kib;
  uint32_t gl1c_cache_kib, gl2c_cache_kib;
  uint64_t mall_bytes;
  uint32_t enabled_rb_pipes_mask_high;
  uint32_t shadow_bytes, shadow_alignment, csa_bytes, csa_alignment;
};

struct GpuvmFault {
  uint64_t address;
  uint32_t status, hub;
};

}  // namespace tandem::rdna::abi
