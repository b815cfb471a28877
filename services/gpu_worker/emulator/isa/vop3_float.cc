// VOP3: floats, and the parts of a division.
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

using enum Type;

double FusedOnce(float a, float b, float c) { return static_cast<double>(a) * b + c; }

uint32_t SignedNormal16(float value) {
  const float limited = value != value ? 0.0f : Minimum(Maximum(value, -1.0f), 1.0f);
  return static_cast<uint32_t>(ToInteger<int32_t>(RoundEven(limited * 32767.0f))) & 0xffff;
}
uint32_t UnsignedNormal16(float value) {
  const float limited = value != value ? 0.0f : Minimum(Maximum(value, 0.0f), 1.0f);
  return ToInteger<uint32_t>(RoundEven(limited * 65535.0f)) & 0xffff;
}

// A byte of the third source replaced by a float, rounded.
uint32_t PackByte(float value, uint32_t byte, uint32_t others) {
  const int shift = static_cast<int>(byte & 3) * 8;
  const float limited = value != value ? 0.0f : Minimum(Maximum(RoundEven(value), 0.0f), 255.0f);
  return (others & ~(uint32_t{0xff} << shift)) | static_cast<uint32_t>(limited) << shift;
}

// The faces of a cube map, numbered as the hardware does.
int CubeFace(float x, float y, float z) {
  const float ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
  if (az >= ax && az >= ay) return z < 0 ? 5 : 4;
  if (ay >= ax) return y < 0 ? 3 : 2;
  return x < 0 ? 1 : 0;
}

float CubeS(float x, float y, float z) {
  switch (CubeFace(x, y, z)) {
    case 5:
      return -x;
    case 4:
      return x;
    case 3:
    case 2:
      return x;
    case 1:
      return z;
    default:
      return -z;
  }
}

float CubeT(float x, float y, float z) {
  switch (CubeFace(x, y, z)) {
    case 3:
      return -z;
    case 2:
      return z;
    default:
      return -y;
  }
}

float CubeMajor(float x, float y, float z) {
  switch (CubeFace(x, y, z)) {
    case 5:
    case 4:
      return 2 * z;
    case 3:
    case 2:
      return 2 * y;
    default:
      return 2 * x;
  }
}

// Sign and special cases of a quotient `c / b` whose value was computed as `a`.
template <class Float>
Float FixDivision(Float quotient, Float denominator, Float numerator) {
  const bool negative = std::signbit(denominator) != std::signbit(numerator);
  const auto sign = [negative](Float value) { return negative ? -value : value; };
  if (numerator != numerator) return numerator;
  if (denominator != denominator) return denominator;
  const bool both_zero = numerator == 0 && denominator == 0;
  const bool both_infinite = std::isinf(numerator) && std::isinf(denominator);
  if (both_zero || both_infinite) return std::numeric_limits<Float>::quiet_NaN();
  if (denominator == 0 || std::isinf(numerator)) {
    return sign(std::numeric_limits<Float>::infinity());
  }
  if (numerator == 0 || std::isinf(denominator)) return sign(Float(0));
  return sign(std::fabs(quotient));
}

const Entry kFloats3[] = {
    Vector<kF32, kF32, kF32, kF32>(
        521, "v_fma_dx9_zero_f32",
        [](float a, float b, float c) { return a == 0 || b == 0 ? 0.0f + c : std::fma(a, b, c); }),
    Vector<kF32, kF32, kF32, kF32>(
        524, "v_cubeid_f32",
        [](float a, float b, float c) { return static_cast<float>(CubeFace(a, b, c)); }),
    Vector<kF32, kF32, kF32, kF32>(525, "v_cubesc_f32",
                                   [](float a, float b, float c) { return CubeS(a, b, c); }),
    Vector<kF32, kF32, kF32, kF32>(526, "v_cubetc_f32",
                                   [](float a, float b, float c) { return CubeT(a, b, c); }),
    Vector<kF32, kF32, kF32, kF32>(527, "v_cubema_f32",
                                   [](float a, float b, float c) { return CubeMajor(a, b, c); }),
    Special(531, "v_fma_f32", &FusedHandler, 3),
    Vector<kF64, kF64, kF64, kF64>(532, "v_fma_f64",
                                   [](double a, double b, double c) { return std::fma(a, b, c); }),
    Vector<kF32, kF32, kF32, kF32>(
        537, "v_min3_f32", [](float a, float b, float c) { return Minimum(Minimum(a, b), c); }),
    Vector<kF32, kF32, kF32, kF32>(
        540, "v_max3_f32", [](float a, float b, float c) { return Maximum(Maximum(a, b), c); }),
    Vector<kF32, kF32, kF32, kF32>(543, "v_med3_f32",
                                   [](float a, float b, float c) { return Median(a, b, c); }),
    Vector<kB32, kF32, kB32, kB32>(
        550, "v_cvt_pk_u8_f32", [](float a, uint32_t b, uint32_t c) { return PackByte(a, b, c); }),
    Vector<kF32, kF32, kF32, kF32>(551, "v_div_fixup_f32",
                                   [](float a, float b, float c) { return FixDivision(a, b, c); }),
    Vector<kF64, kF64, kF64, kF64>(
        552, "v_div_fixup_f64", [](double a, double b, double c) { return FixDivision(a, b, c); }),
    Vector<kF16, kF16, kF16, kF16>(596, "v_div_fixup_f16",
                                   [](float a, float b, float c) { return FixDivision(a, b, c); }),
    Vector<kF16, kF16, kF16, kF16>(584, "v_fma_f16",
                                   [](float a, float b, float c) { return FusedOnce(a, b, c); }),
    Vector<kF16, kF16, kF16, kF16>(
        585, "v_min3_f16", [](float a, float b, float c) { return Minimum(Minimum(a, b), c); }),
    Vector<kF16, kF16, kF16, kF16>(
        588, "v_max3_f16", [](float a, float b, float c) { return Maximum(Maximum(a, b), c); }),
    Vector<kF16, kF16, kF16, kF16>(591, "v_med3_f16",
                                   [](float a, float b, float c) { return Median(a, b, c); }),
    Vector<kF32, kF32, kF32, kF32>(
        606, "v_maxmin_f32", [](float a, float b, float c) { return Minimum(Maximum(a, b), c); }),
    Vector<kF32, kF32, kF32, kF32>(
        607, "v_minmax_f32", [](float a, float b, float c) { return Maximum(Minimum(a, b), c); }),
    Vector<kF16, kF16, kF16, kF16>(
        608, "v_maxmin_f16", [](float a, float b, float c) { return Minimum(Maximum(a, b), c); }),
    Vector<kF16, kF16, kF16, kF16>(
        609, "v_minmax_f16", [](float a, float b, float c) { return Maximum(Minimum(a, b), c); }),
    Vector<kB32, kF32, kF32>(774, "v_cvt_pk_i16_f32",
                             [](float a, float b) {
                               return (static_cast<uint32_t>(ToInteger<int16_t>(a)) & 0xffff) |
                                      static_cast<uint32_t>(ToInteger<int16_t>(b)) << 16;
                             }),
    Vector<kB32, kF32, kF32>(775, "v_cvt_pk_u16_f32",
                             [](float a, float b) {
                               return ToInteger<uint16_t>(a) | uint32_t{ToInteger<uint16_t>(b)}
                                                                   << 16;
                             }),
    Vector<kB32, kM16, kM16>(785, "v_pack_b32_f16",
                             [](uint32_t a, uint32_t b) { return a | b << 16; }),
    Vector<kB32, kF16, kF16>(
        786, "v_cvt_pk_norm_i16_f16",
        [](float a, float b) { return SignedNormal16(a) | SignedNormal16(b) << 16; }),
    Vector<kB32, kF16, kF16>(
        787, "v_cvt_pk_norm_u16_f16",
        [](float a, float b) { return UnsignedNormal16(a) | UnsignedNormal16(b) << 16; }),
    Vector<kB32, kF32, kF32>(
        801, "v_cvt_pk_norm_i16_f32",
        [](float a, float b) { return SignedNormal16(a) | SignedNormal16(b) << 16; }),
    Vector<kB32, kF32, kF32>(
        802, "v_cvt_pk_norm_u16_f32",
        [](float a, float b) { return UnsignedNormal16(a) | UnsignedNormal16(b) << 16; }),
    Vector<kF32, kF32, kB32>(
        796, "v_ldexp_f32",
        [](float a, uint32_t b) { return std::ldexp(a, static_cast<int32_t>(b)); }),
    Vector<kF64, kF64, kB32>(
        811, "v_ldexp_f64",
        [](double a, uint32_t b) { return std::ldexp(a, static_cast<int32_t>(b)); }),
    Vector<kF64, kF64, kF64>(807, "v_add_f64", [](double a, double b) { return a + b; }),
    Vector<kF64, kF64, kF64>(808, "v_mul_f64", [](double a, double b) { return a * b; }),
    Vector<kF64, kF64, kF64>(809, "v_min_f64", [](double a, double b) { return Minimum(a, b); }),
    Vector<kF64, kF64, kF64>(810, "v_max_f64", [](double a, double b) { return Maximum(a, b); }),
};

}  // namespace

Table Vop3FloatTable() { return kFloats3; }

}  // namespace tandem::rdna
