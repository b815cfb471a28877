#include "services/npu_worker/emulator/driver/device_paths.h"

#include <string_view>

namespace tandem::npu::emulator {
namespace {

// Whether `path` is `folder` or below it.
bool IsWithin(std::string_view path, std::string_view folder) {
  return path.substr(0, folder.size()) == folder &&
         (path.size() == folder.size() || path[folder.size()] == '/');
}

}  // namespace

std::string RealPath(const std::string& tree, const char* path) {
  static const std::string device = std::string("/sys/bus/pci/devices/") + kPciAddress;
  static const std::string bridge = std::string("/sys/devices/pci0000:c0/") + kPciAddress;
  for (const std::string_view folder :
       {std::string_view("/dev/accel"), std::string_view("/sys/bus/pci/drivers/amdxdna"),
        std::string_view("/sys/module/amdxdna"), std::string_view(device),
        std::string_view(bridge)}) {
    if (IsWithin(path, folder)) return tree + path;
  }
  return path;
}

std::string ShownPath(const std::string& tree, const char* path) {
  return IsWithin(path, tree) ? path + tree.size() : path;
}

}  // namespace tandem::npu::emulator
