// VOP1: moves, bits and conversions.
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

using enum Type;

constexpr int At(int op) { return kVop1Base + op; }

uint32_t CountLeadingZeros(uint32_t value) {
  return value == 0 ? ~0u : static_cast<uint32_t>(__builtin_clz(value));
}

uint32_t CountTrailingZeros(uint32_t value) {
  return value == 0 ? ~0u : static_cast<uint32_t>(__builtin_ctz(value));
}

// How many bits at the top equal the sign, the sign itself included; -1 for 0 and -1.
uint32_t CountSigns(uint32_t value) {
  const uint32_t folded = static_cast<int32_t>(value) < 0 ? ~value : value;
  return folded == 0 ? ~0u : static_cast<uint32_t>(__builtin_clz(folded));
}

uint32_t Saturate8(uint32_t value) {
  const int32_t number = SignExtend(value & 0xffff, 16);
  return static_cast<uint32_t>(number < 0 ? 0 : number > 255 ? 255 : number);
}

// To [-1, 1] times 32767, and [0, 1] times 65535.
uint32_t SignedNormal(float value) {
  if (value != value) return 0;
  const float limited = Minimum(Maximum(value, -1.0f), 1.0f);
  return static_cast<uint32_t>(ToInteger<int32_t>(RoundEven(limited * 32767.0f))) & 0xffff;
}
uint32_t UnsignedNormal(float value) {
  if (value != value) return 0;
  const float limited = Minimum(Maximum(value, 0.0f), 1.0f);
  return ToInteger<uint32_t>(RoundEven(limited * 65535.0f)) & 0xffff;
}

const Entry kMoves[] = {
    Vector<kM32, kM32>(At(1), "v_mov_b32", [](uint32_t a) { return a; }),
    Vector<kB16, kM16>(At(28), "v_mov_b16", [](uint32_t a) { return a; }),
    Vector<kB32, kB32>(At(55), "v_not_b32", [](uint32_t a) { return ~a; }),
    Vector<kB16, kB16>(At(105), "v_not_b16", [](uint32_t a) { return ~a; }),
    Vector<kB32, kB32>(At(56), "v_bfrev_b32", [](uint32_t a) { return ReverseBits(a); }),
    Vector<kB32, kB32>(At(57), "v_clz_i32_u32", [](uint32_t a) { return CountLeadingZeros(a); }),
    Vector<kB32, kB32>(At(58), "v_ctz_i32_b32", [](uint32_t a) { return CountTrailingZeros(a); }),
    Vector<kB32, kB32>(At(59), "v_cls_i32", [](uint32_t a) { return CountSigns(a); }),
    Vector<kB32, kB16>(At(106), "v_cvt_i32_i16",
                       [](uint32_t a) { return static_cast<uint32_t>(SignExtend(a, 16)); }),
    Vector<kB32, kB16>(At(107), "v_cvt_u32_u16", [](uint32_t a) { return a; }),
    Vector<kB16, kB32>(At(98), "v_sat_pk_u8_i16",
                       [](uint32_t a) { return Saturate8(a) | Saturate8(a >> 16) << 8; }),

    Vector<kB32, kF64>(At(3), "v_cvt_i32_f64",
                       [](double a) { return static_cast<uint32_t>(ToInteger<int32_t>(a)); }),
    Vector<kB32, kF64>(At(21), "v_cvt_u32_f64", [](double a) { return ToInteger<uint32_t>(a); }),
    Vector<kF64, kB32>(At(4), "v_cvt_f64_i32",
                       [](uint32_t a) { return static_cast<double>(static_cast<int32_t>(a)); }),
    Vector<kF64, kB32>(At(22), "v_cvt_f64_u32", [](uint32_t a) { return static_cast<double>(a); }),
    Vector<kF32, kF64>(At(15), "v_cvt_f32_f64", [](double a) { return static_cast<float>(a); }),
    Vector<kF64, kF32>(At(16), "v_cvt_f64_f32", [](float a) { return static_cast<double>(a); }),

    Vector<kF32, kB32>(At(5), "v_cvt_f32_i32",
                       [](uint32_t a) { return static_cast<float>(static_cast<int32_t>(a)); }),
    Vector<kF32, kB32>(At(6), "v_cvt_f32_u32", [](uint32_t a) { return static_cast<float>(a); }),
    Vector<kB32, kF32>(At(7), "v_cvt_u32_f32", [](float a) { return ToInteger<uint32_t>(a); }),
    Vector<kB32, kF32>(At(8), "v_cvt_i32_f32",
                       [](float a) { return static_cast<uint32_t>(ToInteger<int32_t>(a)); }),
    Vector<kB32, kF32>(At(12), "v_cvt_nearest_i32_f32",
                       [](float a) {
                         return static_cast<uint32_t>(
                             ToInteger<int32_t>(std::floor(static_cast<double>(a) + 0.5)));
                       }),
    Vector<kB32, kF32>(
        At(13), "v_cvt_floor_i32_f32",
        [](float a) { return static_cast<uint32_t>(ToInteger<int32_t>(std::floor(a))); }),
    Vector<kF32, kB32>(
        At(14), "v_cvt_off_f32_i4",
        [](uint32_t a) { return static_cast<float>(SignExtend(a & 15, 4)) * 0.0625f; }),
    Vector<kF32, kB32>(At(17), "v_cvt_f32_ubyte0",
                       [](uint32_t a) { return static_cast<float>(a & 0xff); }),
    Vector<kF32, kB32>(At(18), "v_cvt_f32_ubyte1",
                       [](uint32_t a) { return static_cast<float>(a >> 8 & 0xff); }),
    Vector<kF32, kB32>(At(19), "v_cvt_f32_ubyte2",
                       [](uint32_t a) { return static_cast<float>(a >> 16 & 0xff); }),
    Vector<kF32, kB32>(At(20), "v_cvt_f32_ubyte3",
                       [](uint32_t a) { return static_cast<float>(a >> 24); }),
    Vector<kF16, kF32>(At(10), "v_cvt_f16_f32", [](float a) { return a; }),
    Vector<kF32, kF16>(At(11), "v_cvt_f32_f16", [](float a) { return a; }),
    Vector<kF16, kB16>(At(80), "v_cvt_f16_u16", [](uint32_t a) { return static_cast<float>(a); }),
    Vector<kF16, kB16>(At(81), "v_cvt_f16_i16",
                       [](uint32_t a) { return static_cast<float>(SignExtend(a, 16)); }),
    Vector<kB16, kF16>(At(82), "v_cvt_u16_f16",
                       [](float a) { return uint32_t{ToInteger<uint16_t>(a)}; }),
    Vector<kB16, kF16>(At(83), "v_cvt_i16_f16",
                       [](float a) { return static_cast<uint32_t>(ToInteger<int16_t>(a)); }),
    Vector<kB16, kF16>(At(99), "v_cvt_norm_i16_f16", [](float a) { return SignedNormal(a); }),
    Vector<kB16, kF16>(At(100), "v_cvt_norm_u16_f16", [](float a) { return UnsignedNormal(a); }),
};

}  // namespace

Table MoveTable() { return kMoves; }

}  // namespace tandem::rdna
