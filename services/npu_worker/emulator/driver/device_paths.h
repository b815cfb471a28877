// Where the emulated NPU's device node and its description in sysfs really lie.
#pragma once

#include <string>

namespace tandem::npu::emulator {

inline constexpr char kDeviceNode[] = "/dev/accel/accel0";
inline constexpr char kPciAddress[] = "0000:c5:00.1";

// `path` below `tree` if it is of the emulated NPU (/dev/accel, its driver and its PCI device in /sys),
// otherwise `path`.
std::string RealPath(const std::string& tree, const char* path);
// The reverse.
std::string ShownPath(const std::string& tree, const char* path);

}  // namespace tandem::npu::emulator
