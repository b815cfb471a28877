#include "services/gpu_worker/emulator/driver/device_clock.h"

#include <algorithm>

namespace tandem::rdna {
namespace {

constexpr double kLaunchNanoseconds = 4000;
// Clocks of a SIMD: v_wmma of 16 x 16 x 16 takes 32, other vector instructions one for 32 lanes.
constexpr double kMatrixClocks = 32;
// An LDS or a load instruction of 32 lanes of four bytes takes a processor of two SIMDs one clock
// and two; addresses that lie together are assumed.
constexpr double kLdsClocks = 2, kLoadClocks = 4;
constexpr double kSimdsPerCu = 2;

}  // namespace

uint64_t DispatchNanoseconds(const Chip& chip, bool wave32, const Counters& counters) {
  const double passes = wave32 ? 1 : 2;
  const auto of = [](uint64_t count) { return static_cast<double>(count); };
  const double vector =
      passes * (of(counters.vector) + of(counters.dots)) + kMatrixClocks * of(counters.matrices);
  const double scalar = of(counters.scalar) + of(counters.scalar_loads) + of(counters.branches);
  const double lds = passes * kLdsClocks * of(counters.lds);
  const double memory =
      passes * kLoadClocks * (of(counters.loads) + of(counters.stores) + of(counters.atomics));
  const double clocks = std::max({vector, scalar, lds, memory});
  const double simds = kSimdsPerCu * chip.cus();
  return static_cast<uint64_t>(kLaunchNanoseconds + clocks / simds * 1e6 / chip.max_clock_khz);
}

uint64_t CopyNanoseconds(const Chip& chip, uint64_t bytes) {
  // Memory of two transfers a clock; a copy reads and writes.
  const double bytes_per_nanosecond = chip.memory_clock_khz * 2e-6 * chip.memory_bits / 8;
  return static_cast<uint64_t>(2 * static_cast<double>(bytes) / bytes_per_nanosecond) + 1000;
}

}  // namespace tandem::rdna
