#include "services/common/base/half.h"

namespace tandem {

// Scale by powers of two lets the float unit do the rounding; see Giesen, "Half to float done
// quick".
uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude >= 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7C00u | (magnitude > 0x7F800000u ? 0x0200u : 0u));
  }
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x38800000u) {
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  magnitude += 0xC8000FFFu + odd;
  return static_cast<uint16_t>(sign | (magnitude >> 13));
}

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t magnitude = bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) {
    return std::bit_cast<float>(sign | 0x7F800000u | ((magnitude & 0x03FFu) << 13));
  }
  const float scaled = std::bit_cast<float>(magnitude << 13) * std::bit_cast<float>(0x77800000u);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace tandem
