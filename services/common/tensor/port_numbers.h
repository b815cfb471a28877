// Numbers of 16 bits in which q, k, v and attention cross workers: kF16 or kBf16.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "services/common/base/check.h"
#include "services/common/base/half.h"
#include "services/common/tensor/dtype.h"

namespace tandem {

// REQUIRES in both: kF16 or kBf16, and as many of the one as of the other.
inline void PortToFloats(DType port_dtype, const uint16_t* numbers, std::span<float> values) {
  TANDEM_CHECK(port_dtype == DType::kF16 || port_dtype == DType::kBf16);
  std::transform(numbers, numbers + values.size(), values.begin(),
                 port_dtype == DType::kBf16 ? Bf16ToFloat : HalfToFloat);
}
inline void FloatsToPort(DType port_dtype, std::span<const float> values, uint16_t* numbers) {
  TANDEM_CHECK(port_dtype == DType::kF16 || port_dtype == DType::kBf16);
  std::transform(values.begin(), values.end(), numbers,
                 port_dtype == DType::kBf16 ? FloatToBf16 : FloatToHalf);
}

}  // namespace tandem
