#include "services/npu_worker/emulator/driver/profile.h"

#include <array>
#include <cstdlib>
#include <string>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu::emulator {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::array<DriverProfile, 2> Profiles() {
  return {DriverProfile{.name = "npu1",
                        .generation = 3,
                        .num_columns = 5,
                        .first_column = 1,
                        .aligned_columns = false,
                        .max_contexts = 6,
                        .max_heap_bytes = 64 * kMiB},
          DriverProfile{.name = "npu4",
                        .generation = 4,
                        .num_columns = 8,
                        .first_column = 0,
                        .aligned_columns = true,
                        .max_contexts = 16,
                        .max_heap_bytes = 512 * kMiB}};
}

}  // namespace

absl::StatusOr<DriverProfile> FindProfile(std::string_view name) {
  for (const DriverProfile& profile : Profiles()) {
    if (profile.name == name) return profile;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("NPU_EMU_PROFILE=%s: must be npu1 or npu4", std::string(name)));
}

absl::StatusOr<DriverProfile> ProfileFromEnvironment() {
  const char* name = std::getenv("NPU_EMU_PROFILE");
  TANDEM_ASSIGN_OR_RETURN(DriverProfile profile, FindProfile(name == nullptr ? "npu4" : name));
  if (const char* recovery = std::getenv("NPU_EMU_RECOVERY_MS"); recovery != nullptr) {
    profile.recovery_after = absl::Milliseconds(std::strtoll(recovery, nullptr, 10));
  }
  return profile;
}

}  // namespace tandem::npu::emulator
