// What the amdxdna driver says of its NPU, asked through the device node.
//
// Source: include/uapi/drm/amdxdna_accel.h, DRM_IOCTL_AMDXDNA_GET_INFO and GET_ARRAY.  Drivers before 2026 know
// fewer questions.  Not verified on hardware.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/common/base/unique_fd.h"

namespace tandem {

// ::ioctl, but in tests.
using DriverIoctl = std::function<int(int fd, unsigned long request, void* argument)>;

struct NpuContext {
  uint32_t num_columns = 0;
  int64_t pid = 0;  // 0: not told
};

// Thread-compatible.
class NpuDriver {
 public:
  // Opens a node; nullptr: it is not there, or this user may not.
  static std::unique_ptr<NpuDriver> Open(const std::string& node, DriverIoctl ioctl);

  // Each of these is nullopt where the driver does not know the question.

  // "1.1.2.64"
  std::optional<std::string> FirmwareVersion() const;
  // 0: the driver's default; 1 low, 2 medium, 3 high, 4 turbo.
  std::optional<uint32_t> PowerMode() const;
  // Hardware contexts of all processes, 64 at most.
  std::optional<std::vector<NpuContext>> Contexts() const;

 private:
  NpuDriver(UniqueFd node, DriverIoctl ioctl) : node_(std::move(node)), ioctl_(std::move(ioctl)) {}
  bool Call(unsigned long request, void* argument) const;
  // Fills `bytes` bytes at `answer`.
  bool GetInfo(uint32_t what, void* answer, uint32_t bytes) const;

  const UniqueFd node_;
  const DriverIoctl ioctl_;
};

}  // namespace tandem
