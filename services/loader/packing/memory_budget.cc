#include "services/loader/packing/memory_budget.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"

namespace tandem::loader {
namespace {

// The number after `key` in a file of "key value" lines; the first word for an empty key.
std::optional<uint64_t> ReadNumber(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  if (!key.empty()) {
    while (file >> word && word != key) {
    }
  }
  uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;  // "max" is no number
  return value;
}

// The memory left to the control group that this process sees as its root (a container's own).
std::optional<uint64_t> ControlGroupBytesLeft() {
  const std::string root = "/sys/fs/cgroup/";
  const auto limit = ReadNumber(root + "memory.max", "");
  const auto current = ReadNumber(root + "memory.current", "");
  if (!limit || !current) return std::nullopt;
  const uint64_t reclaimable = ReadNumber(root + "memory.stat", "inactive_file").value_or(0);
  const uint64_t used = *current - std::min(*current, reclaimable);
  return *limit - std::min(*limit, used);
}

}  // namespace

uint64_t AvailableMemoryBytes() {
  uint64_t available = std::numeric_limits<uint64_t>::max();
  if (const auto kib = ReadNumber("/proc/meminfo", "MemAvailable:")) available = *kib * 1024;
  if (const auto left = ControlGroupBytesLeft()) available = std::min(available, *left);
  return available;
}

absl::Status CheckMemoryBudget(uint64_t bytes) {
  const uint64_t available = AvailableMemoryBytes();
  const uint64_t reserve = std::max<uint64_t>(bytes / 32, 64 << 20);
  if (bytes <= available && reserve <= available - bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "the weights need %d MiB and %d MiB are available; use a smaller model or format",
      bytes >> 20, available >> 20));
}

}  // namespace tandem::loader
