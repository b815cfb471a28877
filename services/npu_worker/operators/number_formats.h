// Float16 and bfloat16, in which workers exchange numbers, and bfloat16, with which cores compute.
#pragma once

#include <cstdint>
#include <span>

#include "services/common/tensor/dtype.h"

namespace tandem::npu {

// Rounds to nearest even; infinities and NaNs stay.  REQUIRES equal sizes.
void HalvesToBf16(std::span<const uint16_t> halves, std::span<uint16_t> bf16);
// Values beyond float16's range become infinite.  REQUIRES equal sizes.
void Bf16ToHalves(std::span<const uint16_t> bf16, std::span<uint16_t> halves);
// The same, but finite values beyond float16's range become the largest finite one: float16's values
// from 65408 on are 65536 in bfloat16, and come back as 65504.
// So HalvesToBf16 of what this gives is what HalvesToBf16 gave before.  REQUIRES equal sizes.
void Bf16ToFiniteHalves(std::span<const uint16_t> bf16, std::span<uint16_t> halves);

// From a port's format to bfloat16 and back: a copy where the port has bfloat16, else as above.
// REQUIRES equal sizes, and kF16 or kBf16.
void PortToBf16(DType port_dtype, std::span<const uint16_t> numbers, std::span<uint16_t> bf16);
void Bf16ToPort(DType port_dtype, std::span<const uint16_t> bf16, std::span<uint16_t> numbers);

}  // namespace tandem::npu
