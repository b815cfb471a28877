// SOP2: scalar integers and bits of two sources.
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

uint32_t A32(const Wave& wave, const Instruction& i) { return ReadScalar32(wave, i, i.src[0]); }
uint32_t B32(const Wave& wave, const Instruction& i) { return ReadScalar32(wave, i, i.src[1]); }
uint64_t A64(const Wave& wave, const Instruction& i) { return ReadScalar64(wave, i, i.src[0]); }
uint64_t B64(const Wave& wave, const Instruction& i) { return ReadScalar64(wave, i, i.src[1]); }

// What becomes of SCC.
enum class Scc { kKept, kNotZero };

template <class Function, Scc kScc>
void Run32(Wave& wave, const Instruction& i) {
  const uint32_t result = Function{}(A32(wave, i), B32(wave, i));
  if (kScc == Scc::kNotZero) wave.scc = result != 0;
  wave.SetSgpr(i.dst, result);
}
template <class Function, Scc kScc>
void Run64(Wave& wave, const Instruction& i) {
  const uint64_t result = Function{}(A64(wave, i), B64(wave, i));
  if (kScc == Scc::kNotZero) wave.scc = result != 0;
  wave.SetScalar64(i.dst, result);
}
// The second source has 32 bits.
template <class Function>
void Run64By32(Wave& wave, const Instruction& i) {
  const uint64_t result = Function{}(A64(wave, i), B32(wave, i));
  wave.scc = result != 0;
  wave.SetScalar64(i.dst, result);
}
// The function sets SCC.
template <class Function>
void RunScc(Wave& wave, const Instruction& i) {
  const uint32_t a = A32(wave, i), b = B32(wave, i);
  wave.SetSgpr(i.dst, Function{}(a, b, wave.scc));
}

template <Scc kScc = Scc::kNotZero, class Function>
constexpr Entry Bits32(int op, const char* name, Function) {
  return Special(op, name, &Run32<Function, kScc>, 2, Kind::kScalar);
}
template <Scc kScc = Scc::kNotZero, class Function>
constexpr Entry Bits64(int op, const char* name, Function) {
  return Special(op, name, &Run64<Function, kScc>, 2, Kind::kScalar);
}
template <class Function>
constexpr Entry Bits64By32(int op, const char* name, Function) {
  return Special(op, name, &Run64By32<Function>, 2, Kind::kScalar);
}
template <class Function>
constexpr Entry SetsScc(int op, const char* name, Function) {
  return Special(op, name, &RunScc<Function>, 2, Kind::kScalar);
}

uint32_t Sum(uint64_t sum, bool& carry) {
  carry = sum >> 32 != 0;
  return static_cast<uint32_t>(sum);
}
uint32_t SignedSum(int64_t sum, bool& overflow) {
  overflow = sum != static_cast<int32_t>(sum);
  return static_cast<uint32_t>(sum);
}
int64_t Wide(uint32_t value) { return static_cast<int32_t>(value); }

// a << by + b, with the carry of the sum.
uint32_t ShiftAdd(uint32_t a, uint32_t b, int by, bool& carry) {
  return Sum((uint64_t{a} << by) + b, carry);
}

uint64_t MaskOf(uint32_t width) { return width >= 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1; }

// The field's offset is in bits 4:0 (5:0 of 64), its width in bits 22:16.
uint64_t Field(uint64_t value, uint32_t offset, uint32_t width) {
  return value >> offset & MaskOf(width);
}
int64_t SignedField(uint64_t value, uint32_t offset, uint32_t width) {
  if (width == 0) return 0;
  const uint64_t field = Field(value, offset, width);
  const int unused = width >= 64 ? 0 : 64 - static_cast<int>(width);
  return static_cast<int64_t>(field << unused) >> unused;
}

uint32_t Width(uint32_t b) { return b >> 16 & 0x7f; }

template <bool k64>
void Select(Wave& wave, const Instruction& i) {
  if (k64) {
    wave.SetScalar64(i.dst, wave.scc ? A64(wave, i) : B64(wave, i));
  } else {
    wave.SetSgpr(i.dst, wave.scc ? A32(wave, i) : B32(wave, i));
  }
}

void BitFieldMask64(Wave& wave, const Instruction& i) {
  wave.SetScalar64(i.dst, MaskOf(A32(wave, i) & 63) << (B32(wave, i) & 63));
}

const Entry kSop2[] = {
    SetsScc(0, "s_add_u32",
            [](uint32_t a, uint32_t b, bool& scc) { return Sum(uint64_t{a} + b, scc); }),
    SetsScc(1, "s_sub_u32",
            [](uint32_t a, uint32_t b, bool& scc) { return Sum(uint64_t{a} - b, scc); }),
    SetsScc(2, "s_add_i32",
            [](uint32_t a, uint32_t b, bool& scc) { return SignedSum(Wide(a) + Wide(b), scc); }),
    SetsScc(3, "s_sub_i32",
            [](uint32_t a, uint32_t b, bool& scc) { return SignedSum(Wide(a) - Wide(b), scc); }),
    SetsScc(4, "s_addc_u32",
            [](uint32_t a, uint32_t b, bool& scc) {
              return Sum(uint64_t{a} + b + (scc ? 1 : 0), scc);
            }),
    SetsScc(5, "s_subb_u32",
            [](uint32_t a, uint32_t b, bool& scc) {
              return Sum(uint64_t{a} - b - (scc ? 1 : 0), scc);
            }),
    Bits32(6, "s_absdiff_i32",
           [](uint32_t a, uint32_t b) {
             const int64_t difference = static_cast<int32_t>(a - b);
             return static_cast<uint32_t>(difference < 0 ? -difference : difference);
           }),
    Bits32(8, "s_lshl_b32", [](uint32_t a, uint32_t b) { return a << (b & 31); }),
    Bits64By32(9, "s_lshl_b64", [](uint64_t a, uint32_t b) { return a << (b & 63); }),
    Bits32(10, "s_lshr_b32", [](uint32_t a, uint32_t b) { return a >> (b & 31); }),
    Bits64By32(11, "s_lshr_b64", [](uint64_t a, uint32_t b) { return a >> (b & 63); }),
    Bits32(12, "s_ashr_i32",
           [](uint32_t a, uint32_t b) { return static_cast<uint32_t>(Wide(a) >> (b & 31)); }),
    Bits64By32(13, "s_ashr_i64",
               [](uint64_t a, uint32_t b) {
                 return static_cast<uint64_t>(static_cast<int64_t>(a) >> (b & 63));
               }),
    SetsScc(14, "s_lshl1_add_u32",
            [](uint32_t a, uint32_t b, bool& scc) { return ShiftAdd(a, b, 1, scc); }),
    SetsScc(15, "s_lshl2_add_u32",
            [](uint32_t a, uint32_t b, bool& scc) { return ShiftAdd(a, b, 2, scc); }),
    SetsScc(16, "s_lshl3_add_u32",
            [](uint32_t a, uint32_t b, bool& scc) { return ShiftAdd(a, b, 3, scc); }),
    SetsScc(17, "s_lshl4_add_u32",
            [](uint32_t a, uint32_t b, bool& scc) { return ShiftAdd(a, b, 4, scc); }),
    // SCC of minimum and maximum: the first source was taken.
    SetsScc(18, "s_min_i32",
            [](uint32_t a, uint32_t b, bool& scc) {
              scc = Wide(a) < Wide(b);
              return scc ? a : b;
            }),
    SetsScc(19, "s_min_u32",
            [](uint32_t a, uint32_t b, bool& scc) {
              scc = a < b;
              return scc ? a : b;
            }),
    SetsScc(20, "s_max_i32",
            [](uint32_t a, uint32_t b, bool& scc) {
              scc = Wide(a) >= Wide(b);
              return scc ? a : b;
            }),
    SetsScc(21, "s_max_u32",
            [](uint32_t a, uint32_t b, bool& scc) {
              scc = a >= b;
              return scc ? a : b;
            }),
    Bits32(22, "s_and_b32", [](uint32_t a, uint32_t b) { return a & b; }),
    Bits64(23, "s_and_b64", [](uint64_t a, uint64_t b) { return a & b; }),
    Bits32(24, "s_or_b32", [](uint32_t a, uint32_t b) { return a | b; }),
    Bits64(25, "s_or_b64", [](uint64_t a, uint64_t b) { return a | b; }),
    Bits32(26, "s_xor_b32", [](uint32_t a, uint32_t b) { return a ^ b; }),
    Bits64(27, "s_xor_b64", [](uint64_t a, uint64_t b) { return a ^ b; }),
    Bits32(28, "s_nand_b32", [](uint32_t a, uint32_t b) { return ~(a & b); }),
    Bits64(29, "s_nand_b64", [](uint64_t a, uint64_t b) { return ~(a & b); }),
    Bits32(30, "s_nor_b32", [](uint32_t a, uint32_t b) { return ~(a | b); }),
    Bits64(31, "s_nor_b64", [](uint64_t a, uint64_t b) { return ~(a | b); }),
    Bits32(32, "s_xnor_b32", [](uint32_t a, uint32_t b) { return ~(a ^ b); }),
    Bits64(33, "s_xnor_b64", [](uint64_t a, uint64_t b) { return ~(a ^ b); }),
    Bits32(34, "s_and_not1_b32", [](uint32_t a, uint32_t b) { return a & ~b; }),
    Bits64(35, "s_and_not1_b64", [](uint64_t a, uint64_t b) { return a & ~b; }),
    Bits32(36, "s_or_not1_b32", [](uint32_t a, uint32_t b) { return a | ~b; }),
    Bits64(37, "s_or_not1_b64", [](uint64_t a, uint64_t b) { return a | ~b; }),
    Bits32(
        38, "s_bfe_u32",
        [](uint32_t a, uint32_t b) { return static_cast<uint32_t>(Field(a, b & 31, Width(b))); }),
    Bits32(39, "s_bfe_i32",
           [](uint32_t a, uint32_t b) {
             return static_cast<uint32_t>(
                 SignedField(static_cast<uint64_t>(Wide(a)), b & 31, Width(b)));
           }),
    Bits64By32(40, "s_bfe_u64", [](uint64_t a, uint32_t b) { return Field(a, b & 63, Width(b)); }),
    Bits64By32(41, "s_bfe_i64",
               [](uint64_t a, uint32_t b) {
                 return static_cast<uint64_t>(SignedField(
                     static_cast<uint64_t>(static_cast<int64_t>(a) >> (b & 63)), 0, Width(b)));
               }),
    Bits32<Scc::kKept>(
        42, "s_bfm_b32",
        [](uint32_t a, uint32_t b) { return static_cast<uint32_t>(MaskOf(a & 31)) << (b & 31); }),
    Special(43, "s_bfm_b64", &BitFieldMask64, 2, Kind::kScalar),
    Bits32<Scc::kKept>(44, "s_mul_i32", [](uint32_t a, uint32_t b) { return a * b; }),
    Bits32<Scc::kKept>(
        45, "s_mul_hi_u32",
        [](uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); }),
    Bits32<Scc::kKept>(
        46, "s_mul_hi_i32",
        [](uint32_t a, uint32_t b) { return static_cast<uint32_t>(Wide(a) * Wide(b) >> 32); }),
    Special(48, "s_cselect_b32", &Select<false>, 2, Kind::kScalar),
    Special(49, "s_cselect_b64", &Select<true>, 2, Kind::kScalar),
    Bits32<Scc::kKept>(50, "s_pack_ll_b32_b16",
                       [](uint32_t a, uint32_t b) { return (a & 0xffff) | b << 16; }),
    Bits32<Scc::kKept>(51, "s_pack_lh_b32_b16",
                       [](uint32_t a, uint32_t b) { return (a & 0xffff) | (b & 0xffff0000); }),
    Bits32<Scc::kKept>(52, "s_pack_hh_b32_b16",
                       [](uint32_t a, uint32_t b) { return a >> 16 | (b & 0xffff0000); }),
    Bits32<Scc::kKept>(53, "s_pack_hl_b32_b16",
                       [](uint32_t a, uint32_t b) { return a >> 16 | b << 16; }),
};

}  // namespace

Table Sop2Table() { return kSop2; }

}  // namespace tandem::rdna
