#include "services/npu_worker/operators/number_formats.h"

#include <algorithm>
#include <bit>

#include "services/common/base/check.h"

namespace tandem::npu {
namespace {

// Without branches, so that loops become vector code.
[[gnu::always_inline]] inline uint32_t Select(bool first, uint32_t a, uint32_t b) {
  const uint32_t mask = 0u - uint32_t{first};
  return (a & mask) | (b & ~mask);
}

[[gnu::always_inline]] inline uint16_t Bf16OfHalf(uint16_t half) {
  // The exponent is rebiased by a product, which normalises small numbers as well.
  const uint32_t magnitude =
      std::bit_cast<uint32_t>(std::bit_cast<float>(uint32_t{half & 0x7FFFu} << 13) * 0x1p112f);
  const uint32_t rounded = (magnitude + 0x7FFF + (magnitude >> 16 & 1)) >> 16;
  const uint32_t fraction = half & 0x3FFu;
  const uint32_t special = 0x7F80u | fraction >> 3 | Select(fraction != 0, 0x40, 0);
  const uint32_t value = Select((half & 0x7C00u) == 0x7C00u, special, rounded);
  return static_cast<uint16_t>(value | (half & 0x8000u));
}

[[gnu::always_inline]] inline uint16_t HalfOfBf16(uint16_t bf16) {
  const uint32_t magnitude = uint32_t{bf16 & 0x7FFFu} << 16;
  // Eight bits of a normal number fit float16's eleven.
  const uint32_t normal = (magnitude - (112u << 23)) >> 13;
  // Small numbers: the sum rounds to multiples of float16's smallest.
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
                         std::bit_cast<uint32_t>(0.5f);
  const uint32_t finite = Select(magnitude < 0x38800000u, small, normal);
  const uint32_t bounded = Select(magnitude >= 0x47800000u, 0x7C00, finite);
  const uint32_t value = Select(magnitude > 0x7F800000u, 0x7E00, bounded);
  return static_cast<uint16_t>(value | (bf16 & 0x8000u));
}

[[gnu::always_inline]] inline uint16_t FiniteHalfOfBf16(uint16_t bf16) {
  const uint32_t magnitude = bf16 & 0x7FFFu;
  const bool is_beyond = magnitude >= 0x4780u && magnitude < 0x7F80u;
  return static_cast<uint16_t>(Select(is_beyond, 0x7BFFu | (bf16 & 0x8000u), HalfOfBf16(bf16)));
}

// Inlined into functions for each kind of processor, where loops become vector code of that kind.
template <uint16_t (*kConvert)(uint16_t)>
[[gnu::always_inline]] inline void ConvertAll(std::span<const uint16_t> from,
                                              std::span<uint16_t> to) {
  for (size_t i = 0; i < from.size(); ++i) to[i] = kConvert(from[i]);
}

using Conversion = void (*)(std::span<const uint16_t>, std::span<uint16_t>);

template <uint16_t (*kConvert)(uint16_t)>
void ConvertBaseline(std::span<const uint16_t> from, std::span<uint16_t> to) {
  ConvertAll<kConvert>(from, to);
}

#if defined(__x86_64__)
template <uint16_t (*kConvert)(uint16_t)>
[[gnu::target("avx2")]] void ConvertAvx2(std::span<const uint16_t> from, std::span<uint16_t> to) {
  ConvertAll<kConvert>(from, to);
}
template <uint16_t (*kConvert)(uint16_t)>
Conversion Choose() {
  return __builtin_cpu_supports("avx2") ? ConvertAvx2<kConvert> : ConvertBaseline<kConvert>;
}
#else
template <uint16_t (*kConvert)(uint16_t)>
Conversion Choose() {
  return ConvertBaseline<kConvert>;
}
#endif

}  // namespace

void HalvesToBf16(std::span<const uint16_t> halves, std::span<uint16_t> bf16) {
  static const Conversion convert = Choose<Bf16OfHalf>();
  TANDEM_CHECK(halves.size() == bf16.size());
  convert(halves, bf16);
}

void Bf16ToHalves(std::span<const uint16_t> bf16, std::span<uint16_t> halves) {
  static const Conversion convert = Choose<HalfOfBf16>();
  TANDEM_CHECK(halves.size() == bf16.size());
  convert(bf16, halves);
}

void Bf16ToFiniteHalves(std::span<const uint16_t> bf16, std::span<uint16_t> halves) {
  static const Conversion convert = Choose<FiniteHalfOfBf16>();
  TANDEM_CHECK(halves.size() == bf16.size());
  convert(bf16, halves);
}

void PortToBf16(DType port_dtype, std::span<const uint16_t> numbers, std::span<uint16_t> bf16) {
  TANDEM_CHECK(port_dtype == DType::kF16 || port_dtype == DType::kBf16);
  TANDEM_CHECK(numbers.size() == bf16.size());
  if (port_dtype == DType::kF16) return HalvesToBf16(numbers, bf16);
  std::ranges::copy(numbers, bf16.begin());
}

void Bf16ToPort(DType port_dtype, std::span<const uint16_t> bf16, std::span<uint16_t> numbers) {
  TANDEM_CHECK(port_dtype == DType::kF16 || port_dtype == DType::kBf16);
  TANDEM_CHECK(numbers.size() == bf16.size());
  if (port_dtype == DType::kF16) return Bf16ToHalves(bf16, numbers);
  std::ranges::copy(bf16, numbers.begin());
}

}  // namespace tandem::npu
