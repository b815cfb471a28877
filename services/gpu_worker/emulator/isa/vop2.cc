// VOP2: two sources.  v_fmac and its relatives take their destination as a third source, which the
// decoder sets.
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

using enum Type;

constexpr int Binary(int op) { return kVop2Base + op; }

int64_t Signed24(uint32_t value) { return SignExtend(value & 0xffffff, 24); }
uint64_t Unsigned24(uint32_t value) { return value & 0xffffff; }
int32_t Signed(uint32_t value) { return static_cast<int32_t>(value); }

// 0 times anything is 0.
float MultiplyDx9(float a, float b) { return a == 0 || b == 0 ? 0.0f : a * b; }

float FusedDx9(float a, float b, float c) {
  return a == 0 || b == 0 ? 0.0f + c : std::fma(a, b, c);
}

// Two float32 to float16, towards zero whatever the mode.
uint32_t PackHalvesToZero(float a, float b) {
  return DoubleToHalf(a, Round::kToZero) | uint32_t{DoubleToHalf(b, Round::kToZero)} << 16;
}

double DotHalves(uint32_t a, uint32_t b) {
  return static_cast<double>(HalfToFloat(a & 0xffff)) * HalfToFloat(b & 0xffff) +
         static_cast<double>(HalfToFloat(a >> 16)) * HalfToFloat(b >> 16);
}

uint32_t FusedPair(uint32_t a, uint32_t b, uint32_t c) {
  const auto fused = [](uint32_t x, uint32_t y, uint32_t z) {
    return uint32_t{
        DoubleToHalf(static_cast<double>(HalfToFloat(x)) * HalfToFloat(y) + HalfToFloat(z))};
  };
  return fused(a & 0xffff, b & 0xffff, c & 0xffff) | fused(a >> 16, b >> 16, c >> 16) << 16;
}

double FusedHalf(float a, float b, float c) { return static_cast<double>(a) * b + c; }

const Entry kBinary[] = {
    Vector<kF32, kP16, kP16, kF32>(
        Binary(2), "v_dot2acc_f32_f16",
        [](uint32_t a, uint32_t b, float c) { return DotHalves(a, b) + c; }),
    Vector<kF32, kF32, kF32>(Binary(3), "v_add_f32", [](float a, float b) { return a + b; }),
    Vector<kF32, kF32, kF32>(Binary(4), "v_sub_f32", [](float a, float b) { return a - b; }),
    Vector<kF32, kF32, kF32>(Binary(5), "v_subrev_f32", [](float a, float b) { return b - a; }),
    Vector<kF32, kF32, kF32, kF32>(Binary(6), "v_fmac_dx9_zero_f32",
                                   [](float a, float b, float c) { return FusedDx9(a, b, c); }),
    Vector<kF32, kF32, kF32>(Binary(7), "v_mul_dx9_zero_f32",
                             [](float a, float b) { return MultiplyDx9(a, b); }),
    Vector<kF32, kF32, kF32>(Binary(8), "v_mul_f32", [](float a, float b) { return a * b; }),
    Vector<kB32, kB32, kB32>(
        Binary(9), "v_mul_i32_i24",
        [](uint32_t a, uint32_t b) { return static_cast<uint32_t>(Signed24(a) * Signed24(b)); }),
    Vector<kB32, kB32, kB32>(Binary(10), "v_mul_hi_i32_i24",
                             [](uint32_t a, uint32_t b) {
                               return static_cast<uint32_t>((Signed24(a) * Signed24(b)) >> 32);
                             }),
    Vector<kB32, kB32, kB32>(Binary(11), "v_mul_u32_u24",
                             [](uint32_t a, uint32_t b) {
                               return static_cast<uint32_t>(Unsigned24(a) * Unsigned24(b));
                             }),
    Vector<kB32, kB32, kB32>(Binary(12), "v_mul_hi_u32_u24",
                             [](uint32_t a, uint32_t b) {
                               return static_cast<uint32_t>(Unsigned24(a) * Unsigned24(b) >> 32);
                             }),
    Vector<kF32, kF32, kF32>(Binary(15), "v_min_f32",
                             [](float a, float b) { return Minimum(a, b); }),
    Vector<kF32, kF32, kF32>(Binary(16), "v_max_f32",
                             [](float a, float b) { return Maximum(a, b); }),
    Vector<kB32, kB32, kB32>(Binary(17), "v_min_i32",
                             [](uint32_t a, uint32_t b) { return Signed(a) < Signed(b) ? a : b; }),
    Vector<kB32, kB32, kB32>(Binary(18), "v_max_i32",
                             [](uint32_t a, uint32_t b) { return Signed(a) > Signed(b) ? a : b; }),
    Vector<kB32, kB32, kB32>(Binary(19), "v_min_u32",
                             [](uint32_t a, uint32_t b) { return a < b ? a : b; }),
    Vector<kB32, kB32, kB32>(Binary(20), "v_max_u32",
                             [](uint32_t a, uint32_t b) { return a > b ? a : b; }),
    Vector<kB32, kB32, kB32>(Binary(24), "v_lshlrev_b32",
                             [](uint32_t a, uint32_t b) { return b << (a & 31); }),
    Vector<kB32, kB32, kB32>(Binary(25), "v_lshrrev_b32",
                             [](uint32_t a, uint32_t b) { return b >> (a & 31); }),
    Vector<kB32, kB32, kB32>(
        Binary(26), "v_ashrrev_i32",
        [](uint32_t a, uint32_t b) { return static_cast<uint32_t>(Signed(b) >> (a & 31)); }),
    Vector<kB32, kB32, kB32>(Binary(27), "v_and_b32", [](uint32_t a, uint32_t b) { return a & b; }),
    Vector<kB32, kB32, kB32>(Binary(28), "v_or_b32", [](uint32_t a, uint32_t b) { return a | b; }),
    Vector<kB32, kB32, kB32>(Binary(29), "v_xor_b32", [](uint32_t a, uint32_t b) { return a ^ b; }),
    Vector<kB32, kB32, kB32>(Binary(30), "v_xnor_b32",
                             [](uint32_t a, uint32_t b) { return ~(a ^ b); }),
    Special(Binary(43), "v_fmac_f32", &FusedHandler, 3),
    Special(Binary(44), "v_fmamk_f32", &FusedHandler, 3),
    Special(Binary(45), "v_fmaak_f32", &FusedHandler, 3),
    Vector<kB32, kF32, kF32>(Binary(47), "v_cvt_pk_rtz_f16_f32",
                             [](float a, float b) { return PackHalvesToZero(a, b); }),
    Vector<kF16, kF16, kF16>(Binary(50), "v_add_f16", [](float a, float b) { return a + b; }),
    Vector<kF16, kF16, kF16>(Binary(51), "v_sub_f16", [](float a, float b) { return a - b; }),
    Vector<kF16, kF16, kF16>(Binary(52), "v_subrev_f16", [](float a, float b) { return b - a; }),
    Vector<kF16, kF16, kF16>(Binary(53), "v_mul_f16", [](float a, float b) { return a * b; }),
    Vector<kF16, kF16, kF16, kF16>(Binary(54), "v_fmac_f16",
                                   [](float a, float b, float c) { return FusedHalf(a, b, c); }),
    Vector<kF16, kF16, kF16, kF16>(Binary(55), "v_fmamk_f16",
                                   [](float a, float b, float c) { return FusedHalf(a, b, c); }),
    Vector<kF16, kF16, kF16, kF16>(Binary(56), "v_fmaak_f16",
                                   [](float a, float b, float c) { return FusedHalf(a, b, c); }),
    Vector<kF16, kF16, kF16>(Binary(57), "v_max_f16",
                             [](float a, float b) { return Maximum(a, b); }),
    Vector<kF16, kF16, kF16>(Binary(58), "v_min_f16",
                             [](float a, float b) { return Minimum(a, b); }),
    Vector<kF16, kF16, kB16>(
        Binary(59), "v_ldexp_f16",
        [](float a, uint32_t b) { return std::ldexp(static_cast<double>(a), SignExtend(b, 16)); }),
    Vector<kP16, kP16, kP16, kP16>(
        Binary(60), "v_pk_fmac_f16",
        [](uint32_t a, uint32_t b, uint32_t c) { return FusedPair(a, b, c); }),
};

}  // namespace

Table Vop2Table() { return kBinary; }

}  // namespace tandem::rdna
