// Fused multiply-adds of many lanes, by the CPU's instruction where it has one.
#pragma once

#include <cstdint>

namespace tandem::rdna {

// out[i] = a[i] * b[i] + c[i] of the bits of floats, rounded once, by the CPU's rounding mode.  `out` may be one of the
// sources.
void FusedMultiplyAdd(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out,
                      int count);

}  // namespace tandem::rdna
