// Takes from this process all that decoding a picture does not need.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace tandem::image_decoder {

struct SandboxLimits {
  uint64_t max_memory_bytes = uint64_t{640} << 20;  // address space, libraries and pixels included
  uint64_t max_cpu_seconds = 10;
};

// For good, and before the first byte of a stranger's is read:
//   - limits of memory and processor time; no file can grow, no process be made, no core be dumped
//   - every descriptor but the socket (kDecoderSocket) and standard error is closed
//   - a system call that decoding does not need ends the process (seccomp): no file can be opened,
//     no connection made, nothing executed, no memory made executable
// INTERNAL names the step that the system refuses.
//
// Under sanitizers the memory has no limit and unknown system calls fail with EPERM instead, or a
// report could not be written.
absl::Status EnterSandbox(const SandboxLimits& limits);

}  // namespace tandem::image_decoder
