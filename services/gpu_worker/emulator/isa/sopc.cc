// SOPC: scalar compares, whose result is SCC.  Those of floats exist on RDNA 3.5 only.
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

template <class Function, Type kType>
void CompareScalars(Wave& wave, const Instruction& i) {
  if constexpr (Is64(kType)) {
    wave.scc = Function{}(ReadScalar64(wave, i, i.src[0]), ReadScalar64(wave, i, i.src[1]));
  } else {
    uint32_t a = ReadScalar32(wave, i, i.src[0], kType), b = ReadScalar32(wave, i, i.src[1], kType);
    if (kType == Type::kF32 && !wave.mode.keep_denormals32_in) {
      a = Flush32(a);
      b = Flush32(b);
    }
    if constexpr (kType == Type::kF16) {
      wave.scc = Function{}(HalfToFloat(a & 0xffff), HalfToFloat(b & 0xffff));
    } else {
      wave.scc = Function{}(FromStored<kType>(a), FromStored<kType>(b));
    }
  }
}

template <Type kType = Type::kB32, class Function>
constexpr Entry Compare(int op, const char* name, Function) {
  return Special(op, name, &CompareScalars<Function, kType>, 2, Kind::kScalar);
}

int32_t Number(uint32_t value) { return static_cast<int32_t>(value); }

template <bool k64, bool kSet>
void CompareBit(Wave& wave, const Instruction& i) {
  const uint64_t value = k64 ? ReadScalar64(wave, i, i.src[0]) : ReadScalar32(wave, i, i.src[0]);
  const uint32_t bit = ReadScalar32(wave, i, i.src[1]) & (k64 ? 63 : 31);
  wave.scc = ((value >> bit & 1) != 0) == kSet;
}

// The compares of a float type, from BASE + 1 on.
#define FLOAT_COMPARES(TYPE, BASE, SUFFIX)                                                       \
  Compare<TYPE>(BASE + 1, "s_cmp_lt_" SUFFIX, [](float a, float b) { return a < b; }),           \
      Compare<TYPE>(BASE + 2, "s_cmp_eq_" SUFFIX, [](float a, float b) { return a == b; }),      \
      Compare<TYPE>(BASE + 3, "s_cmp_le_" SUFFIX, [](float a, float b) { return a <= b; }),      \
      Compare<TYPE>(BASE + 4, "s_cmp_gt_" SUFFIX, [](float a, float b) { return a > b; }),       \
      Compare<TYPE>(BASE + 5, "s_cmp_lg_" SUFFIX,                                                \
                    [](float a, float b) { return a < b || a > b; }),                            \
      Compare<TYPE>(BASE + 6, "s_cmp_ge_" SUFFIX, [](float a, float b) { return a >= b; }),      \
      Compare<TYPE>(BASE + 7, "s_cmp_o_" SUFFIX,                                                 \
                    [](float a, float b) { return a == a && b == b; }),                          \
      Compare<TYPE>(BASE + 8, "s_cmp_u_" SUFFIX,                                                 \
                    [](float a, float b) { return a != a || b != b; }),                          \
      Compare<TYPE>(BASE + 9, "s_cmp_nge_" SUFFIX, [](float a, float b) { return !(a >= b); }),  \
      Compare<TYPE>(BASE + 10, "s_cmp_nlg_" SUFFIX,                                              \
                    [](float a, float b) { return !(a < b || a > b); }),                         \
      Compare<TYPE>(BASE + 11, "s_cmp_ngt_" SUFFIX, [](float a, float b) { return !(a > b); }),  \
      Compare<TYPE>(BASE + 12, "s_cmp_nle_" SUFFIX, [](float a, float b) { return !(a <= b); }), \
      Compare<TYPE>(BASE + 13, "s_cmp_neq_" SUFFIX, [](float a, float b) { return !(a == b); }), \
      Compare<TYPE>(BASE + 14, "s_cmp_nlt_" SUFFIX, [](float a, float b) { return !(a < b); })

const Entry kSopc[] = {
    Compare(0, "s_cmp_eq_i32", [](uint32_t a, uint32_t b) { return a == b; }),
    Compare(1, "s_cmp_lg_i32", [](uint32_t a, uint32_t b) { return a != b; }),
    Compare(2, "s_cmp_gt_i32", [](uint32_t a, uint32_t b) { return Number(a) > Number(b); }),
    Compare(3, "s_cmp_ge_i32", [](uint32_t a, uint32_t b) { return Number(a) >= Number(b); }),
    Compare(4, "s_cmp_lt_i32", [](uint32_t a, uint32_t b) { return Number(a) < Number(b); }),
    Compare(5, "s_cmp_le_i32", [](uint32_t a, uint32_t b) { return Number(a) <= Number(b); }),
    Compare(6, "s_cmp_eq_u32", [](uint32_t a, uint32_t b) { return a == b; }),
    Compare(7, "s_cmp_lg_u32", [](uint32_t a, uint32_t b) { return a != b; }),
    Compare(8, "s_cmp_gt_u32", [](uint32_t a, uint32_t b) { return a > b; }),
    Compare(9, "s_cmp_ge_u32", [](uint32_t a, uint32_t b) { return a >= b; }),
    Compare(10, "s_cmp_lt_u32", [](uint32_t a, uint32_t b) { return a < b; }),
    Compare(11, "s_cmp_le_u32", [](uint32_t a, uint32_t b) { return a <= b; }),
    Special(12, "s_bitcmp0_b32", &CompareBit<false, false>, 2, Kind::kScalar),
    Special(13, "s_bitcmp1_b32", &CompareBit<false, true>, 2, Kind::kScalar),
    Special(14, "s_bitcmp0_b64", &CompareBit<true, false>, 2, Kind::kScalar),
    Special(15, "s_bitcmp1_b64", &CompareBit<true, true>, 2, Kind::kScalar),
    Compare<Type::kB64>(16, "s_cmp_eq_u64", [](uint64_t a, uint64_t b) { return a == b; }),
    Compare<Type::kB64>(17, "s_cmp_lg_u64", [](uint64_t a, uint64_t b) { return a != b; }),
    FLOAT_COMPARES(Type::kF32, 64, "f32"),
    FLOAT_COMPARES(Type::kF16, 80, "f16"),
};

#undef FLOAT_COMPARES

}  // namespace

Table SopcTable() { return kSopc; }

}  // namespace tandem::rdna
