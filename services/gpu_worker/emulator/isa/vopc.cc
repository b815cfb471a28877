// VOPC: compares of each lane.  v_cmp writes a bit for each lane to a scalar register, v_cmpx to
// EXEC; bits of lanes that are not active are 0.
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

using enum Type;

template <class Function, Type kA, Type kB>
void CompareHandler(Wave& wave, const Instruction& instruction) {
  std::array<Stored<kA>, kMaxLanes> a_storage;
  std::array<Stored<kB>, kMaxLanes> b_storage;
  const auto* a = LoadSource<kA>(wave, instruction, 0, a_storage);
  const auto* b = LoadSource<kB>(wave, instruction, 1, b_storage);
  uint64_t result = 0;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    const bool bit = Function{}(FromStored<kA>(a[lane]), FromStored<kB>(b[lane]));
    result |= uint64_t{bit} << lane;
  }
  wave.SetMask(instruction.sdst, result & wave.Exec());
}

template <Type kA, Type kB, class Function>
constexpr Entry Compare(int op, const char* name, Function) {
  return {.op = static_cast<uint16_t>(op),
          .name = name,
          .handler = &CompareHandler<Function, kA, kB>,
          .kind = Kind::kVector,
          .num_sources = 2,
          .halves = HalvesOf<kA, kB>()};
}

template <Type kType>
auto Signed(Stored<kType> value) {
  if constexpr (Is64(kType)) {
    return static_cast<int64_t>(value);
  } else if constexpr (IsHalf(kType)) {
    return SignExtend(value, 16);
  } else {
    return static_cast<int32_t>(value);
  }
}

// The classes of v_cmp_class's mask: signalling and quiet NaN, then from -infinity to +infinity.
template <int kExponentBits, int kMantissaBits>
bool IsOfClass(uint64_t bits, uint32_t classes) {
  const bool negative = (bits >> (kExponentBits + kMantissaBits) & 1) != 0;
  const uint64_t exponent = bits >> kMantissaBits & ((1u << kExponentBits) - 1);
  const uint64_t mantissa = bits & ((uint64_t{1} << kMantissaBits) - 1);
  int index = 0;
  if (exponent == (1u << kExponentBits) - 1) {
    if (mantissa != 0) {
      index = (mantissa >> (kMantissaBits - 1) & 1) != 0 ? 1 : 0;
    } else {
      index = negative ? 2 : 9;
    }
  } else if (exponent != 0) {
    index = negative ? 3 : 8;
  } else if (mantissa != 0) {
    index = negative ? 4 : 7;
  } else {
    index = negative ? 5 : 6;
  }
  return (classes >> index & 1) != 0;
}

// The 16 compares of a float type, first v_cmp then, at +128, v_cmpx.
#define FLOAT_COMPARES(TYPE, BASE, PREFIX, SUFFIX)                                                \
  Compare<TYPE, TYPE>(BASE + 0, PREFIX "_f_" SUFFIX, [](auto, auto) { return false; }),           \
      Compare<TYPE, TYPE>(BASE + 1, PREFIX "_lt_" SUFFIX, [](auto a, auto b) { return a < b; }),  \
      Compare<TYPE, TYPE>(BASE + 2, PREFIX "_eq_" SUFFIX, [](auto a, auto b) { return a == b; }), \
      Compare<TYPE, TYPE>(BASE + 3, PREFIX "_le_" SUFFIX, [](auto a, auto b) { return a <= b; }), \
      Compare<TYPE, TYPE>(BASE + 4, PREFIX "_gt_" SUFFIX, [](auto a, auto b) { return a > b; }),  \
      Compare<TYPE, TYPE>(BASE + 5, PREFIX "_lg_" SUFFIX,                                         \
                          [](auto a, auto b) { return a < b || a > b; }),                         \
      Compare<TYPE, TYPE>(BASE + 6, PREFIX "_ge_" SUFFIX, [](auto a, auto b) { return a >= b; }), \
      Compare<TYPE, TYPE>(BASE + 7, PREFIX "_o_" SUFFIX,                                          \
                          [](auto a, auto b) { return a == a && b == b; }),                       \
      Compare<TYPE, TYPE>(BASE + 8, PREFIX "_u_" SUFFIX,                                          \
                          [](auto a, auto b) { return a != a || b != b; }),                       \
      Compare<TYPE, TYPE>(BASE + 9, PREFIX "_nge_" SUFFIX,                                        \
                          [](auto a, auto b) { return !(a >= b); }),                              \
      Compare<TYPE, TYPE>(BASE + 10, PREFIX "_nlg_" SUFFIX,                                       \
                          [](auto a, auto b) { return !(a < b || a > b); }),                      \
      Compare<TYPE, TYPE>(BASE + 11, PREFIX "_ngt_" SUFFIX,                                       \
                          [](auto a, auto b) { return !(a > b); }),                               \
      Compare<TYPE, TYPE>(BASE + 12, PREFIX "_nle_" SUFFIX,                                       \
                          [](auto a, auto b) { return !(a <= b); }),                              \
      Compare<TYPE, TYPE>(BASE + 13, PREFIX "_neq_" SUFFIX,                                       \
                          [](auto a, auto b) { return !(a == b); }),                              \
      Compare<TYPE, TYPE>(BASE + 14, PREFIX "_nlt_" SUFFIX,                                       \
                          [](auto a, auto b) { return !(a < b); }),                               \
      Compare<TYPE, TYPE>(BASE + 15, PREFIX "_t_" SUFFIX, [](auto, auto) { return true; })

#define INTEGER_COMPARES(TYPE, BASE, PREFIX, SUFFIX, VALUE)                                       \
  Compare<TYPE, TYPE>(BASE + 1, PREFIX "_lt_" SUFFIX,                                             \
                      [](auto a, auto b) { return VALUE(a) < VALUE(b); }),                        \
      Compare<TYPE, TYPE>(BASE + 2, PREFIX "_eq_" SUFFIX, [](auto a, auto b) { return a == b; }), \
      Compare<TYPE, TYPE>(BASE + 3, PREFIX "_le_" SUFFIX,                                         \
                          [](auto a, auto b) { return VALUE(a) <= VALUE(b); }),                   \
      Compare<TYPE, TYPE>(BASE + 4, PREFIX "_gt_" SUFFIX,                                         \
                          [](auto a, auto b) { return VALUE(a) > VALUE(b); }),                    \
      Compare<TYPE, TYPE>(BASE + 5, PREFIX "_ne_" SUFFIX, [](auto a, auto b) { return a != b; }), \
      Compare<TYPE, TYPE>(BASE + 6, PREFIX "_ge_" SUFFIX,                                         \
                          [](auto a, auto b) { return VALUE(a) >= VALUE(b); })

#define CONSTANT_COMPARES(TYPE, BASE, PREFIX, SUFFIX)                                   \
  Compare<TYPE, TYPE>(BASE + 0, PREFIX "_f_" SUFFIX, [](auto, auto) { return false; }), \
      Compare<TYPE, TYPE>(BASE + 7, PREFIX "_t_" SUFFIX, [](auto, auto) { return true; })

#define ALL_COMPARES(BASE, PREFIX)                                                           \
  FLOAT_COMPARES(kF16, BASE, PREFIX, "f16"), FLOAT_COMPARES(kF32, BASE + 16, PREFIX, "f32"), \
      FLOAT_COMPARES(kF64, BASE + 32, PREFIX, "f64"),                                        \
      INTEGER_COMPARES(kB16, BASE + 48, PREFIX, "i16", Signed<kB16>),                        \
      INTEGER_COMPARES(kB16, BASE + 56, PREFIX, "u16", ),                                    \
      INTEGER_COMPARES(kB32, BASE + 64, PREFIX, "i32", Signed<kB32>),                        \
      CONSTANT_COMPARES(kB32, BASE + 64, PREFIX, "i32"),                                     \
      INTEGER_COMPARES(kB32, BASE + 72, PREFIX, "u32", ),                                    \
      CONSTANT_COMPARES(kB32, BASE + 72, PREFIX, "u32"),                                     \
      INTEGER_COMPARES(kI64, BASE + 80, PREFIX, "i64", Signed<kI64>),                        \
      CONSTANT_COMPARES(kI64, BASE + 80, PREFIX, "i64"),                                     \
      INTEGER_COMPARES(kB64, BASE + 88, PREFIX, "u64", ),                                    \
      CONSTANT_COMPARES(kB64, BASE + 88, PREFIX, "u64"),                                     \
      Compare<kM16, kB16>(BASE + 125, PREFIX "_class_f16",                                   \
                          [](uint32_t a, uint32_t b) { return IsOfClass<5, 10>(a, b); }),    \
      Compare<kM32, kB32>(BASE + 126, PREFIX "_class_f32",                                   \
                          [](uint32_t a, uint32_t b) { return IsOfClass<8, 23>(a, b); }),    \
      Compare<kB64, kB32>(BASE + 127, PREFIX "_class_f64",                                   \
                          [](uint64_t a, uint32_t b) { return IsOfClass<11, 52>(a, b); })

const Entry kCompares[] = {ALL_COMPARES(0, "v_cmp"), ALL_COMPARES(128, "v_cmpx")};

#undef ALL_COMPARES
#undef CONSTANT_COMPARES
#undef INTEGER_COMPARES
#undef FLOAT_COMPARES

}  // namespace

Table CompareTable() { return kCompares; }

}  // namespace tandem::rdna
