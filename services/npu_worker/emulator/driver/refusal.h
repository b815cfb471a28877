// How the emulated driver says no: an errno for the caller, the reason on standard error, where a
// real driver writes to the kernel's log.
#pragma once

#include <cstdio>
#include <string>

namespace tandem::npu::emulator {

// 0, or an errno.
using Errno = int;

inline Errno Refuse(Errno error, const std::string& reason) {
  std::fprintf(stderr, "npu driver (emulated): %s\n", reason.c_str());
  return error;
}

}  // namespace tandem::npu::emulator
