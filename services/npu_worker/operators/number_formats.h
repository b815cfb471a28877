// float16 as workers exchange it, and bfloat16 as cores compute with it.
#pragma once

#include <cstdint>
#include <span>

namespace tandem::npu {

// Rounds to nearest even; infinities and NaNs stay.  REQUIRES equal sizes.
void HalvesToBf16(std::span<const uint16_t> halves, std::span<uint16_t> bf16);
// Values beyond float16's range become infinite.  REQUIRES equal sizes.
void Bf16ToHalves(std::span<const uint16_t> bf16, std::span<uint16_t> halves);

}  // namespace tandem::npu
