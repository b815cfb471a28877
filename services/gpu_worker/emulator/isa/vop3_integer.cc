// VOP3: integers and bits, and the clamping additions of VOP2.
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

using enum Type;

int64_t S32(uint32_t value) { return static_cast<int32_t>(value); }
int32_t S16(uint32_t value) { return SignExtend(value & 0xffff, 16); }
int64_t S24(uint32_t value) { return SignExtend(value & 0xffffff, 24); }
uint64_t U24(uint32_t value) { return value & 0xffffff; }
uint32_t Low(int64_t value) { return static_cast<uint32_t>(value); }

uint32_t BitField(uint32_t value, uint32_t offset, uint32_t width) {
  return value >> (offset & 31) & ((uint32_t{1} << (width & 31)) - 1);
}

uint32_t SignedBitField(uint32_t value, uint32_t offset, uint32_t width) {
  return static_cast<uint32_t>(
      SignExtend(static_cast<uint32_t>(S32(value) >> (offset & 31)), width & 31));
}

// A byte of the pair (a above b), or its sign, or a constant.
uint32_t PermutedByte(uint64_t bytes, uint32_t selector) {
  if (selector >= 13) return 0xff;
  if (selector == 12) return 0;
  if (selector >= 8) return (bytes >> (16 * (selector - 8) + 15) & 1) != 0 ? 0xff : 0;
  return bytes >> (8 * selector) & 0xff;
}

uint32_t Permute(uint32_t a, uint32_t b, uint32_t selectors) {
  const uint64_t bytes = uint64_t{a} << 32 | b;
  uint32_t result = 0;
  for (int byte = 0; byte < 4; ++byte) {
    result |= PermutedByte(bytes, selectors >> (8 * byte) & 0xff) << (8 * byte);
  }
  return result;
}

uint32_t ByteDifferences(uint32_t a, uint32_t b, bool skip_zeros) {
  uint32_t sum = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    const uint32_t x = a >> shift & 0xff, y = b >> shift & 0xff;
    if (!skip_zeros || y != 0) sum += x < y ? y - x : x - y;
  }
  return sum;
}

uint32_t Lerp(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    const uint32_t sum = (a >> shift & 0xff) + (b >> shift & 0xff) + (c >> shift & 1);
    result |= (sum >> 1 & 0xff) << shift;
  }
  return result;
}

uint32_t Magnitude(int64_t value) { return static_cast<uint32_t>(value < 0 ? -value : value); }

const Entry kIntegers[] = {
    Clampable<kB32, kB32, kB32>(
        kVop2Base + 37, "v_add_nc_u32", [](uint32_t a, uint32_t b) { return a + b; },
        [](uint32_t a, uint32_t b) { return Saturate<uint32_t>(int64_t{a} + b); }),
    Clampable<kB32, kB32, kB32>(
        kVop2Base + 38, "v_sub_nc_u32", [](uint32_t a, uint32_t b) { return a - b; },
        [](uint32_t a, uint32_t b) { return Saturate<uint32_t>(int64_t{a} - b); }),
    Clampable<kB32, kB32, kB32>(
        kVop2Base + 39, "v_subrev_nc_u32", [](uint32_t a, uint32_t b) { return b - a; },
        [](uint32_t a, uint32_t b) { return Saturate<uint32_t>(int64_t{b} - a); }),
    Clampable<kB32, kB32, kB32>(
        806, "v_add_nc_i32", [](uint32_t a, uint32_t b) { return a + b; },
        [](uint32_t a, uint32_t b) { return Saturate<int32_t>(S32(a) + S32(b)); }),
    Clampable<kB32, kB32, kB32>(
        805, "v_sub_nc_i32", [](uint32_t a, uint32_t b) { return a - b; },
        [](uint32_t a, uint32_t b) { return Saturate<int32_t>(S32(a) - S32(b)); }),
    Clampable<kB32, kB32, kB32, kB32>(
        522, "v_mad_i32_i24",
        [](uint32_t a, uint32_t b, uint32_t c) { return Low(S24(a) * S24(b)) + c; },
        [](uint32_t a, uint32_t b, uint32_t c) {
          return Saturate<int32_t>(S24(a) * S24(b) + S32(c));
        }),
    Clampable<kB32, kB32, kB32, kB32>(
        523, "v_mad_u32_u24",
        [](uint32_t a, uint32_t b, uint32_t c) {
          return static_cast<uint32_t>(U24(a) * U24(b)) + c;
        },
        [](uint32_t a, uint32_t b, uint32_t c) {
          return Saturate<uint32_t>(static_cast<int64_t>(U24(a) * U24(b) + c));
        }),
    Vector<kB32, kB32, kB32, kB32>(
        528, "v_bfe_u32", [](uint32_t a, uint32_t b, uint32_t c) { return BitField(a, b, c); }),
    Vector<kB32, kB32, kB32, kB32>(
        529, "v_bfe_i32",
        [](uint32_t a, uint32_t b, uint32_t c) { return SignedBitField(a, b, c); }),
    Vector<kB32, kB32, kB32, kB32>(
        530, "v_bfi_b32", [](uint32_t a, uint32_t b, uint32_t c) { return (a & b) | (~a & c); }),
    Vector<kB32, kB32, kB32, kB32>(
        533, "v_lerp_u8", [](uint32_t a, uint32_t b, uint32_t c) { return Lerp(a, b, c); }),
    Vector<kB32, kB32, kB32, kB32>(534, "v_alignbit_b32",
                                   [](uint32_t a, uint32_t b, uint32_t c) {
                                     return static_cast<uint32_t>((uint64_t{a} << 32 | b) >>
                                                                  (c & 31));
                                   }),
    Vector<kB32, kB32, kB32, kB32>(535, "v_alignbyte_b32",
                                   [](uint32_t a, uint32_t b, uint32_t c) {
                                     return static_cast<uint32_t>((uint64_t{a} << 32 | b) >>
                                                                  (8 * (c & 3)));
                                   }),
    Vector<kB32, kB32, kB32, kB32>(538, "v_min3_i32",
                                   [](uint32_t a, uint32_t b, uint32_t c) {
                                     return Low(std::min(std::min(S32(a), S32(b)), S32(c)));
                                   }),
    Vector<kB32, kB32, kB32, kB32>(
        539, "v_min3_u32",
        [](uint32_t a, uint32_t b, uint32_t c) { return std::min(std::min(a, b), c); }),
    Vector<kB32, kB32, kB32, kB32>(541, "v_max3_i32",
                                   [](uint32_t a, uint32_t b, uint32_t c) {
                                     return Low(std::max(std::max(S32(a), S32(b)), S32(c)));
                                   }),
    Vector<kB32, kB32, kB32, kB32>(
        542, "v_max3_u32",
        [](uint32_t a, uint32_t b, uint32_t c) { return std::max(std::max(a, b), c); }),
    Vector<kB32, kB32, kB32, kB32>(
        544, "v_med3_i32",
        [](uint32_t a, uint32_t b, uint32_t c) { return Low(Median(S32(a), S32(b), S32(c))); }),
    Vector<kB32, kB32, kB32, kB32>(
        545, "v_med3_u32", [](uint32_t a, uint32_t b, uint32_t c) { return Median(a, b, c); }),
    Clampable<kB32, kB32, kB32, kB32>(
        546, "v_sad_u8",
        [](uint32_t a, uint32_t b, uint32_t c) { return ByteDifferences(a, b, false) + c; },
        [](uint32_t a, uint32_t b, uint32_t c) {
          return Saturate<uint32_t>(int64_t{ByteDifferences(a, b, false)} + c);
        }),
    Vector<kB32, kB32, kB32, kB32>(547, "v_sad_hi_u8",
                                   [](uint32_t a, uint32_t b, uint32_t c) {
                                     return (ByteDifferences(a, b, false) << 16) + c;
                                   }),
    Vector<kB32, kB32, kB32, kB32>(548, "v_sad_u16",
                                   [](uint32_t a, uint32_t b, uint32_t c) {
                                     return Magnitude(int64_t{a & 0xffff} - (b & 0xffff)) +
                                            Magnitude(int64_t{a >> 16} - (b >> 16)) + c;
                                   }),
    Vector<kB32, kB32, kB32, kB32>(
        549, "v_sad_u32",
        [](uint32_t a, uint32_t b, uint32_t c) { return Magnitude(int64_t{a} - b) + c; }),
    Vector<kB32, kB32, kB32, kB32>(
        569, "v_msad_u8",
        [](uint32_t a, uint32_t b, uint32_t c) { return ByteDifferences(a, b, true) + c; }),
    Vector<kB32, kB32, kB32, kB32>(576, "v_xor3_b32",
                                   [](uint32_t a, uint32_t b, uint32_t c) { return a ^ b ^ c; }),
    Vector<kB32, kB32, kB32, kB32>(
        580, "v_perm_b32", [](uint32_t a, uint32_t b, uint32_t c) { return Permute(a, b, c); }),
    Vector<kB32, kB32, kB32, kB32>(581, "v_xad_u32",
                                   [](uint32_t a, uint32_t b, uint32_t c) { return (a ^ b) + c; }),
    Vector<kB32, kB32, kB32, kB32>(
        582, "v_lshl_add_u32",
        [](uint32_t a, uint32_t b, uint32_t c) { return (a << (b & 31)) + c; }),
    Vector<kB32, kB32, kB32, kB32>(
        583, "v_add_lshl_u32",
        [](uint32_t a, uint32_t b, uint32_t c) { return (a + b) << (c & 31); }),
    Vector<kB32, kB32, kB32, kB32>(597, "v_add3_u32",
                                   [](uint32_t a, uint32_t b, uint32_t c) { return a + b + c; }),
    Vector<kB32, kB32, kB32, kB32>(
        598, "v_lshl_or_b32", [](uint32_t a, uint32_t b, uint32_t c) { return a << (b & 31) | c; }),
    Vector<kB32, kB32, kB32, kB32>(599, "v_and_or_b32",
                                   [](uint32_t a, uint32_t b, uint32_t c) { return (a & b) | c; }),
    Vector<kB32, kB32, kB32, kB32>(600, "v_or3_b32",
                                   [](uint32_t a, uint32_t b, uint32_t c) { return a | b | c; }),
    Vector<kB32, kB32, kB32, kB32>(
        610, "v_maxmin_u32",
        [](uint32_t a, uint32_t b, uint32_t c) { return std::min(std::max(a, b), c); }),
    Vector<kB32, kB32, kB32, kB32>(
        611, "v_minmax_u32",
        [](uint32_t a, uint32_t b, uint32_t c) { return std::max(std::min(a, b), c); }),
    Vector<kB32, kB32, kB32, kB32>(612, "v_maxmin_i32",
                                   [](uint32_t a, uint32_t b, uint32_t c) {
                                     return Low(std::min(std::max(S32(a), S32(b)), S32(c)));
                                   }),
    Vector<kB32, kB32, kB32, kB32>(613, "v_minmax_i32",
                                   [](uint32_t a, uint32_t b, uint32_t c) {
                                     return Low(std::max(std::min(S32(a), S32(b)), S32(c)));
                                   }),
    Vector<kB32, kB32, kB32>(
        797, "v_bfm_b32",
        [](uint32_t a, uint32_t b) { return ((uint32_t{1} << (a & 31)) - 1) << (b & 31); }),
    Vector<kB32, kB32, kB32>(
        798, "v_bcnt_u32_b32",
        [](uint32_t a, uint32_t b) { return static_cast<uint32_t>(__builtin_popcount(a)) + b; }),
    Vector<kB32, kB32, kB32>(
        803, "v_cvt_pk_u16_u32",
        [](uint32_t a, uint32_t b) { return Saturate<uint16_t>(a) | Saturate<uint16_t>(b) << 16; }),
    Vector<kB32, kB32, kB32>(804, "v_cvt_pk_i16_i32",
                             [](uint32_t a, uint32_t b) {
                               return (Saturate<int16_t>(S32(a)) & 0xffff) |
                                      Saturate<int16_t>(S32(b)) << 16;
                             }),
    Vector<kB32, kB32, kB32>(812, "v_mul_lo_u32", [](uint32_t a, uint32_t b) { return a * b; }),
    Vector<kB32, kB32, kB32>(
        813, "v_mul_hi_u32",
        [](uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); }),
    Vector<kB32, kB32, kB32>(814, "v_mul_hi_i32",
                             [](uint32_t a, uint32_t b) { return Low(S32(a) * S32(b) >> 32); }),
    Vector<kB64, kB32, kB64>(828, "v_lshlrev_b64",
                             [](uint32_t a, uint64_t b) { return b << (a & 63); }),
    Vector<kB64, kB32, kB64>(829, "v_lshrrev_b64",
                             [](uint32_t a, uint64_t b) { return b >> (a & 63); }),
    Vector<kB64, kB32, kB64>(830, "v_ashrrev_i64",
                             [](uint32_t a, uint64_t b) {
                               return static_cast<uint64_t>(static_cast<int64_t>(b) >> (a & 63));
                             }),
};

// 16 bits.
const Entry kShorts[] = {
    Clampable<kB16, kB16, kB16, kB16>(
        577, "v_mad_u16", [](uint32_t a, uint32_t b, uint32_t c) { return a * b + c; },
        [](uint32_t a, uint32_t b, uint32_t c) { return Saturate<uint16_t>(int64_t{a} * b + c); }),
    Clampable<kB16, kB16, kB16, kB16>(
        595, "v_mad_i16", [](uint32_t a, uint32_t b, uint32_t c) { return a * b + c; },
        [](uint32_t a, uint32_t b, uint32_t c) {
          return Saturate<int16_t>(int64_t{S16(a)} * S16(b) + S16(c));
        }),
    Clampable<kB32, kB16, kB16, kB32>(
        601, "v_mad_u32_u16", [](uint32_t a, uint32_t b, uint32_t c) { return a * b + c; },
        [](uint32_t a, uint32_t b, uint32_t c) { return Saturate<uint32_t>(int64_t{a} * b + c); }),
    Clampable<kB32, kB16, kB16, kB32>(
        602, "v_mad_i32_i16",
        [](uint32_t a, uint32_t b, uint32_t c) {
          return static_cast<uint32_t>(S16(a) * S16(b)) + c;
        },
        [](uint32_t a, uint32_t b, uint32_t c) {
          return Saturate<int32_t>(int64_t{S16(a)} * S16(b) + S32(c));
        }),
    Vector<kB16, kB16, kB16, kB16>(586, "v_min3_i16",
                                   [](uint32_t a, uint32_t b, uint32_t c) {
                                     return static_cast<uint32_t>(
                                         std::min(std::min(S16(a), S16(b)), S16(c)));
                                   }),
    Vector<kB16, kB16, kB16, kB16>(
        587, "v_min3_u16",
        [](uint32_t a, uint32_t b, uint32_t c) { return std::min(std::min(a, b), c); }),
    Vector<kB16, kB16, kB16, kB16>(589, "v_max3_i16",
                                   [](uint32_t a, uint32_t b, uint32_t c) {
                                     return static_cast<uint32_t>(
                                         std::max(std::max(S16(a), S16(b)), S16(c)));
                                   }),
    Vector<kB16, kB16, kB16, kB16>(
        590, "v_max3_u16",
        [](uint32_t a, uint32_t b, uint32_t c) { return std::max(std::max(a, b), c); }),
    Vector<kB16, kB16, kB16, kB16>(592, "v_med3_i16",
                                   [](uint32_t a, uint32_t b, uint32_t c) {
                                     return static_cast<uint32_t>(Median(S16(a), S16(b), S16(c)));
                                   }),
    Vector<kB16, kB16, kB16, kB16>(
        593, "v_med3_u16", [](uint32_t a, uint32_t b, uint32_t c) { return Median(a, b, c); }),
    Clampable<kB16, kB16, kB16>(
        771, "v_add_nc_u16", [](uint32_t a, uint32_t b) { return a + b; },
        [](uint32_t a, uint32_t b) { return Saturate<uint16_t>(int64_t{a} + b); }),
    Clampable<kB16, kB16, kB16>(
        772, "v_sub_nc_u16", [](uint32_t a, uint32_t b) { return a - b; },
        [](uint32_t a, uint32_t b) { return Saturate<uint16_t>(int64_t{a} - b); }),
    Clampable<kB16, kB16, kB16>(
        781, "v_add_nc_i16", [](uint32_t a, uint32_t b) { return a + b; },
        [](uint32_t a, uint32_t b) { return Saturate<int16_t>(S16(a) + S16(b)); }),
    Clampable<kB16, kB16, kB16>(
        782, "v_sub_nc_i16", [](uint32_t a, uint32_t b) { return a - b; },
        [](uint32_t a, uint32_t b) { return Saturate<int16_t>(S16(a) - S16(b)); }),
    Vector<kB16, kB16, kB16>(773, "v_mul_lo_u16", [](uint32_t a, uint32_t b) { return a * b; }),
    Vector<kB16, kB16, kB16>(777, "v_max_u16",
                             [](uint32_t a, uint32_t b) { return std::max(a, b); }),
    Vector<kB16, kB16, kB16>(778, "v_max_i16",
                             [](uint32_t a, uint32_t b) { return S16(a) > S16(b) ? a : b; }),
    Vector<kB16, kB16, kB16>(779, "v_min_u16",
                             [](uint32_t a, uint32_t b) { return std::min(a, b); }),
    Vector<kB16, kB16, kB16>(780, "v_min_i16",
                             [](uint32_t a, uint32_t b) { return S16(a) < S16(b) ? a : b; }),
    Vector<kB16, kB16, kB16>(824, "v_lshlrev_b16",
                             [](uint32_t a, uint32_t b) { return b << (a & 15); }),
    Vector<kB16, kB16, kB16>(825, "v_lshrrev_b16",
                             [](uint32_t a, uint32_t b) { return b >> (a & 15); }),
    Vector<kB16, kB16, kB16>(
        826, "v_ashrrev_i16",
        [](uint32_t a, uint32_t b) { return static_cast<uint32_t>(S16(b) >> (a & 15)); }),
    Vector<kB16, kB16, kB16>(866, "v_and_b16", [](uint32_t a, uint32_t b) { return a & b; }),
    Vector<kB16, kB16, kB16>(867, "v_or_b16", [](uint32_t a, uint32_t b) { return a | b; }),
    Vector<kB16, kB16, kB16>(868, "v_xor_b16", [](uint32_t a, uint32_t b) { return a ^ b; }),
};

}  // namespace

Table Vop3IntegerTable() { return kIntegers; }
Table Vop3ShortTable() { return kShorts; }

}  // namespace tandem::rdna
