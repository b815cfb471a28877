#include "services/gpu_worker/emulator/isa/fused.h"

#include <cmath>

#include "services/gpu_worker/emulator/isa/numbers.h"

namespace tandem::rdna {
namespace {

void ByLibrary(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out, int count) {
  for (int i = 0; i < count; ++i) {
    out[i] = AsBits(std::fma(AsFloat(a[i]), AsFloat(b[i]), AsFloat(c[i])));
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void ByInstruction(const uint32_t* a, const uint32_t* b,
                                                       const uint32_t* c, uint32_t* out,
                                                       int count) {
  for (int i = 0; i < count; ++i) {
    out[i] = AsBits(__builtin_fmaf(AsFloat(a[i]), AsFloat(b[i]), AsFloat(c[i])));
  }
}
#endif

}  // namespace

void FusedMultiplyAdd(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out,
                      int count) {
#if defined(__x86_64__)
  static const bool kHasInstruction =
      __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  if (kHasInstruction) return ByInstruction(a, b, c, out, count);
#endif
  ByLibrary(a, b, c, out, count);
}

}  // namespace tandem::rdna
