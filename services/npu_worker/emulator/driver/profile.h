// The limits of the NPUs that the emulated driver can be: data, from the amdxdna driver's tables.
//
//            chip                          columns  contexts  heap
//   npu1     Ryzen AI 7040, 8040 (XDNA)    4 of 5   6         64 MiB
//   npu4     Ryzen AI 300 (XDNA 2)         8        16        512 MiB
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tandem::npu::emulator {

struct DriverProfile {
  std::string_view name;
  uint32_t generation = 0;       // of cores: 3 is AIE2, 4 AIE2P
  uint32_t num_columns = 0;      // of the array
  uint32_t first_column = 0;     // the first that contexts may use
  bool aligned_columns = false;  // a partition starts at a multiple of its width
  uint32_t max_contexts = 0;     // of all processes together
  uint64_t max_heap_bytes = 0;   // of a process, for instructions and array configurations
  absl::Duration recovery_after = absl::Seconds(2);  // of a command that does not end
};

inline constexpr uint32_t kCoreRows = 4;               // of a column
inline constexpr uint32_t kCommandsInFlight = 4;       // of a context
inline constexpr uint64_t kHeapChunkBytes = 64 << 20;  // the heap grows by these
inline constexpr uint64_t kHeapAlignment = 32 << 10;   // of what lies in the heap
inline constexpr uint64_t kHeapAddress = 0x4000000;    // where the device sees it
inline constexpr uint64_t kChainBytes = 4096;          // what a chain of commands may fill
inline constexpr uint32_t kMaxConfigurations = 32;     // of a context, which the firmware takes

// "npu1" or "npu4".  INVALID_ARGUMENT: another name; the message lists both.
absl::StatusOr<DriverProfile> FindProfile(std::string_view name);

// NPU_EMU_PROFILE (default npu4), with NPU_EMU_RECOVERY_MS in place of the driver's 2 s.
absl::StatusOr<DriverProfile> ProfileFromEnvironment();

}  // namespace tandem::npu::emulator
