#include "services/npu_worker/xrt/device_access.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

namespace tandem::npu {

bool IsEmulated() {
  const char* mode = std::getenv("XCL_EMULATION_MODE");
  return mode != nullptr && mode[0] != '\0';
}

absl::Status CheckDeviceNode(const std::string& folder) {
  std::error_code error;
  std::string refused;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (!absl::StartsWith(entry.path().filename().string(), "accel")) continue;
    if (::access(entry.path().c_str(), R_OK | W_OK) == 0) return absl::OkStatus();
    refused = entry.path().string();
  }
  if (!refused.empty()) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "no permission to open %s: add the user to the group that owns it (usually 'render'; in a "
        "container: --device %s --group-add), then log in again",
        refused, refused));
  }
  return absl::NotFoundError(absl::StrFormat(
      "no NPU device node in %s: load the driver (modprobe amdxdna, Linux 6.14 or AMD's package), "
      "or run with --npu=emulate or --npu=off",
      folder));
}

absl::Status CheckLockedMemory(uint64_t limit_bytes, uint64_t needed_bytes) {
  if (limit_bytes >= needed_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "RLIMIT_MEMLOCK is %d KiB and the NPU's buffers lock %d KiB: raise it (systemd "
      "LimitMEMLOCK=infinity, docker --ulimit memlock=-1, or 'memlock unlimited' in "
      "/etc/security/limits.conf)",
      limit_bytes >> 10, needed_bytes >> 10));
}

uint64_t LockedMemoryLimit() {
  struct rlimit limit {};
  if (::geteuid() == 0 || ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY) {
    return ~uint64_t{0};
  }
  return limit.rlim_cur;
}

uint64_t LockedMemory() {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "VmLck: %llu", &kib) == 1) return uint64_t{kib} << 10;
  }
  return 0;
}

HostMemory ReadHostMemory() {
  HostMemory memory;
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::string unit;
  for (uint64_t kib = 0; file >> key >> kib; std::getline(file, unit)) {
    if (key == "MemTotal:") memory.total_bytes = kib << 10;
    if (key == "MemAvailable:") memory.available_bytes = kib << 10;
  }
  return memory;
}

}  // namespace tandem::npu
