#include "services/npu_worker/emulator/kernels/arithmetic.h"

namespace tandem::npu::emulator {

extern const Arithmetic kArithmetic_baseline;
extern const Arithmetic kArithmetic_avx2;
extern const Arithmetic kArithmetic_avx512;

const Arithmetic& HostArithmetic() {
  static const Arithmetic& best = []() -> const Arithmetic& {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512cd")) {
      return kArithmetic_avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2")) {
      return kArithmetic_avx2;
    }
    return kArithmetic_baseline;
  }();
  return best;
}

}  // namespace tandem::npu::emulator
