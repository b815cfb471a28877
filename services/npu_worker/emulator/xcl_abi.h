// The part of XRT 2.13's driver interface (core/include/xrt.h) that the emulator implements,
// declared here so that XRT's headers stay under xrt/; xrt/emulator_abi_test.cc holds the two
// against each other.
#pragma once

#include <cstdint>

namespace tandem::npu::emulator {

using XclDevice = void*;
using XclBuffer = uint32_t;
using XclExport = int32_t;
inline constexpr XclBuffer kXclNullBuffer = 0xFFFFFFFFu;
inline constexpr XclExport kXclNullExport = -1;
inline constexpr uint32_t kXclCommandBufferFlag = 1u << 31;

struct XclBufferProperties {
  uint32_t handle;
  uint32_t flags;
  uint64_t size;
  uint64_t paddr;
  int reserved;
};

}  // namespace tandem::npu::emulator
