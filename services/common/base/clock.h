// Time for measuring how long things take.
#pragma once

#include <chrono>
#include <cstdint>

namespace tandem {

// Nanoseconds of the steady clock, one clock for all processes of a machine.
inline int64_t NowNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace tandem
