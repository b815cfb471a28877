// What must be right before XRT can open an NPU, checked without XRT, so that start-up names the
// fix instead of passing an errno on.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tandem::npu {

// What XRT's driver locks when it opens a context: the instruction heap.
inline constexpr uint64_t kMinLockedBytes = uint64_t{64} << 20;

// The driver gives up a submission that takes longer, and resets its context (the amdxdna module's
// parameter tdr_timeout_ms).
inline constexpr absl::Duration kDriverRecovery = absl::Seconds(2);
// How long the worker waits for a segment: it gives up first, and says so.
inline constexpr absl::Duration kRunTimeout = absl::Milliseconds(1900);

// Whether XCL_EMULATION_MODE redirects XRT to an emulation, which has no device node.
bool IsEmulated();

// NOT_FOUND: no node below `folder` (normally /dev/accel).  PERMISSION_DENIED: nodes, none of
// which this process may open for reading and writing.  Messages name the fix.
absl::Status CheckDeviceNode(const std::string& folder);

// RESOURCE_EXHAUSTED when `limit_bytes` is below `needed_bytes`.
absl::Status CheckLockedMemory(uint64_t limit_bytes, uint64_t needed_bytes);

// This process's RLIMIT_MEMLOCK; all ones when unlimited or when it does not apply (root).
uint64_t LockedMemoryLimit();

// What this process has locked so far: the instruction heap, and buffers.
uint64_t LockedMemory();

// What the kernel says of main memory, which an NPU shares.
struct HostMemory {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;
};
HostMemory ReadHostMemory();

}  // namespace tandem::npu
