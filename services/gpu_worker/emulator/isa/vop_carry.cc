// Vector operations that read or write a bit for each lane in a scalar register: carries, selects
// and the parts of a division.
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

// The bits of a scalar source, one for each lane.
uint64_t MaskSource(const Wave& wave, const Instruction& instruction, uint32_t code) {
  return code < kZero ? wave.MaskAt(code) : ReadScalar64(wave, instruction, code);
}

// a + b + carry, a - b - carry, or b - a - carry.
enum class Carry { kAdd, kSubtract, kSubtractReversed };

template <Carry kOperation, bool kCarryIn>
void CarryHandler(Wave& wave, const Instruction& instruction) {
  Lanes32 a_storage, b_storage, out;
  const uint32_t* a = LoadLanes32(wave, instruction, 0, Type::kB32, a_storage);
  const uint32_t* b = LoadLanes32(wave, instruction, 1, Type::kB32, b_storage);
  const uint64_t carries = kCarryIn ? MaskSource(wave, instruction, instruction.src[2]) : 0;
  uint64_t carry_out = 0;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    const int64_t carry = static_cast<int64_t>(carries >> lane & 1);
    const int64_t x = a[lane], y = b[lane];
    const int64_t result = kOperation == Carry::kAdd        ? x + y + carry
                           : kOperation == Carry::kSubtract ? x - y - carry
                                                            : y - x - carry;
    out[lane] = static_cast<uint32_t>(result);
    carry_out |= uint64_t{result < 0 || result > 0xffffffff} << lane;
    if (instruction.clamp && result < 0) out[lane] = 0;
    if (instruction.clamp && result > 0xffffffff) out[lane] = 0xffffffff;
  }
  WriteLanes32(wave, instruction.dst, out.data(), WrittenLanes(wave, instruction));
  wave.SetMask(instruction.sdst, carry_out & wave.Exec());
}

template <Type kType>
void SelectHandler(Wave& wave, const Instruction& instruction) {
  Lanes32 a_storage, b_storage, out;
  const uint32_t* a = LoadLanes32(wave, instruction, 0, kType, a_storage);
  const uint32_t* b = LoadLanes32(wave, instruction, 1, kType, b_storage);
  const uint64_t mask = MaskSource(wave, instruction, instruction.src[2]);
  for (int lane = 0; lane < wave.lanes; ++lane) {
    out[lane] = (mask >> lane & 1) != 0 ? b[lane] : a[lane];
  }
  StoreLanes32(wave, instruction, kType, out.data());
}

// a * b + c in 64 bits, with the carry.
template <bool kSigned>
void MultiplyAdd64(Wave& wave, const Instruction& instruction) {
  Lanes32 a_storage, b_storage;
  Lanes64 c_storage, out;
  const uint32_t* a = LoadLanes32(wave, instruction, 0, Type::kB32, a_storage);
  const uint32_t* b = LoadLanes32(wave, instruction, 1, Type::kB32, b_storage);
  const uint64_t* c =
      LoadLanes64(wave, instruction, 2, kSigned ? Type::kI64 : Type::kB64, c_storage);
  uint64_t carry_out = 0;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    const uint64_t product = kSigned
                                 ? static_cast<uint64_t>(int64_t{static_cast<int32_t>(a[lane])} *
                                                         static_cast<int32_t>(b[lane]))
                                 : uint64_t{a[lane]} * b[lane];
    out[lane] = product + c[lane];
    carry_out |= uint64_t{out[lane] < product} << lane;
  }
  WriteLanes64(wave, instruction.dst, out.data(), WrittenLanes(wave, instruction));
  wave.SetMask(instruction.sdst, carry_out & wave.Exec());
}

template <class Float>
bool IsDenormal(Float value) {
  return std::fpclassify(value) == FP_SUBNORMAL;
}

// The limits of v_div_scale for a float type.
template <class Float>
struct Limits {
  static constexpr bool kIs32 = sizeof(Float) == 4;
  static constexpr int kFar = kIs32 ? 96 : 768, kScale = kIs32 ? 64 : 128;
  static constexpr int kLowExponent = kIs32 ? 23 : 53;
  static constexpr int kBias = kIs32 ? 127 : 1023;
};

template <class Float>
int BiasedExponent(Float value) {
  if (value == 0) return 0;
  return std::isfinite(value) ? std::max(0, std::ilogb(value) + Limits<Float>::kBias)
                              : 2 * Limits<Float>::kBias + 1;
}

// `value` is the denominator or the numerator, scaled so that the steps of a division neither
// overflow nor become denormal.  `scaled_later`: v_div_fmas scales the quotient back.
template <class Float>
Float DivisionScale(Float value, Float denominator, Float numerator, bool& scaled_later) {
  using L = Limits<Float>;
  const Float inverse = Float(1) / denominator, quotient = numerator / denominator;
  scaled_later = false;
  if (numerator == 0 || denominator == 0) return std::numeric_limits<Float>::quiet_NaN();
  if (BiasedExponent(numerator) - BiasedExponent(denominator) >= L::kFar) {
    scaled_later = true;
    return value == denominator ? std::ldexp(value, L::kScale) : value;
  }
  if (IsDenormal(denominator)) return std::ldexp(value, L::kScale);
  if (IsDenormal(inverse) && IsDenormal(quotient)) {
    scaled_later = true;
    return value == denominator ? std::ldexp(value, L::kScale) : value;
  }
  if (IsDenormal(inverse)) return std::ldexp(value, -L::kScale);
  if (IsDenormal(quotient)) {
    scaled_later = true;
    return value == numerator ? std::ldexp(value, L::kScale) : value;
  }
  if (BiasedExponent(numerator) <= L::kLowExponent) return std::ldexp(value, L::kScale);
  return value;
}

template <Type kType>
void DivisionScaleHandler(Wave& wave, const Instruction& instruction) {
  std::array<std::array<Stored<kType>, kMaxLanes>, 3> storage;
  std::array<Stored<kType>, kMaxLanes> out;
  const auto* a = LoadSource<kType>(wave, instruction, 0, storage[0]);
  const auto* b = LoadSource<kType>(wave, instruction, 1, storage[1]);
  const auto* c = LoadSource<kType>(wave, instruction, 2, storage[2]);
  uint64_t flags = 0;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    bool scaled_later = false;
    out[lane] =
        ToStored<kType>(DivisionScale(FromStored<kType>(a[lane]), FromStored<kType>(b[lane]),
                                      FromStored<kType>(c[lane]), scaled_later));
    flags |= uint64_t{scaled_later} << lane;
  }
  StoreResult<kType>(wave, instruction, out);
  wave.SetMask(instruction.sdst, flags & wave.Exec());
}

template <Type kType>
void DivisionFmaHandler(Wave& wave, const Instruction& instruction) {
  std::array<std::array<Stored<kType>, kMaxLanes>, 3> storage;
  std::array<Stored<kType>, kMaxLanes> out;
  const auto* a = LoadSource<kType>(wave, instruction, 0, storage[0]);
  const auto* b = LoadSource<kType>(wave, instruction, 1, storage[1]);
  const auto* c = LoadSource<kType>(wave, instruction, 2, storage[2]);
  const uint64_t scaled = wave.MaskAt(kVccLo);
  for (int lane = 0; lane < wave.lanes; ++lane) {
    const auto fused = std::fma(FromStored<kType>(a[lane]), FromStored<kType>(b[lane]),
                                FromStored<kType>(c[lane]));
    const int scale = (scaled >> lane & 1) == 0 ? 0 : kType == Type::kF32 ? 32 : 64;
    out[lane] = ToStored<kType>(std::ldexp(fused, scale));
  }
  StoreResult<kType>(wave, instruction, out);
}

const Entry kCarries[] = {
    Special(768, "v_add_co_u32", &CarryHandler<Carry::kAdd, false>, 2),
    Special(769, "v_sub_co_u32", &CarryHandler<Carry::kSubtract, false>, 2),
    Special(770, "v_subrev_co_u32", &CarryHandler<Carry::kSubtractReversed, false>, 2),
    Special(kVop2Base + 32, "v_add_co_ci_u32", &CarryHandler<Carry::kAdd, true>, 3),
    Special(kVop2Base + 33, "v_sub_co_ci_u32", &CarryHandler<Carry::kSubtract, true>, 3),
    Special(kVop2Base + 34, "v_subrev_co_ci_u32", &CarryHandler<Carry::kSubtractReversed, true>, 3),
    Special(kVop2Base + 1, "v_cndmask_b32", &SelectHandler<Type::kM32>, 3),
    Special(605, "v_cndmask_b16", &SelectHandler<Type::kM16>, 3, Kind::kVector, 8 | 3),
    Special(764, "v_div_scale_f32", &DivisionScaleHandler<Type::kF32>, 3),
    Special(765, "v_div_scale_f64", &DivisionScaleHandler<Type::kF64>, 3),
    Special(567, "v_div_fmas_f32", &DivisionFmaHandler<Type::kF32>, 3),
    Special(568, "v_div_fmas_f64", &DivisionFmaHandler<Type::kF64>, 3),
    Special(766, "v_mad_u64_u32", &MultiplyAdd64<false>, 3),
    Special(767, "v_mad_i64_i32", &MultiplyAdd64<true>, 3),
};

}  // namespace

Table CarryTable() { return kCarries; }

}  // namespace tandem::rdna
