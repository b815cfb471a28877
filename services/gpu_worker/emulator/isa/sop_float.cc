// Scalar floats of RDNA 3.5: SOP2 and SOP1.
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

using enum Type;

template <Type kType>
auto FloatSource(const Wave& wave, const Instruction& i, uint32_t bits) {
  if constexpr (kType == kF32) {
    (void)i;
    return AsFloat(wave.mode.keep_denormals32_in ? bits : Flush32(bits));
  } else if constexpr (kType == kF16) {
    const auto half = static_cast<uint16_t>(bits);
    return HalfToFloat(wave.mode.keep_denormals16_64_in ? half : Flush16(half));
  } else {
    return bits;
  }
}

template <Type kType, class Value>
uint32_t FloatResult(const Wave& wave, Value value) {
  if constexpr (kType == kF32) {
    const uint32_t bits = AsBits(static_cast<float>(value));
    return wave.mode.keep_denormals32_out ? bits : Flush32(bits);
  } else if constexpr (kType == kF16) {
    const uint16_t half =
        DoubleToHalf(static_cast<double>(value), static_cast<Round>(wave.mode.round16_64));
    return wave.mode.keep_denormals16_64_out ? half : Flush16(half);
  } else {
    return static_cast<uint32_t>(value);
  }
}

template <class Function, Type kResult, Type... kSources, size_t... kIndexes>
void RunScalar(Wave& wave, const Instruction& i, std::index_sequence<kIndexes...>) {
  const RoundingScope scope(RoundOf(wave, kResult));
  wave.SetSgpr(i.dst,
               FloatResult<kResult>(
                   wave, Function{}(FloatSource<kSources>(
                             wave, i, ReadScalar32(wave, i, i.src[kIndexes], kSources))...)));
}

template <class Function, Type kResult, Type... kSources>
void ScalarHandler(Wave& wave, const Instruction& i) {
  RunScalar<Function, kResult, kSources...>(wave, i,
                                            std::index_sequence_for<decltype(kSources)...>{});
}

template <Type kResult, Type... kSources, class Function>
constexpr Entry Scalar(int op, const char* name, Function) {
  return Special(op, name, &ScalarHandler<Function, kResult, kSources...>,
                 static_cast<int>(sizeof...(kSources)), Kind::kScalar);
}

// The destination is the third source.
template <Type kType>
void FusedHandler(Wave& wave, const Instruction& i) {
  const RoundingScope scope(RoundOf(wave, kType));
  const auto a = FloatSource<kType>(wave, i, ReadScalar32(wave, i, i.src[0], kType));
  const auto b = FloatSource<kType>(wave, i, ReadScalar32(wave, i, i.src[1], kType));
  const auto c = FloatSource<kType>(wave, i, wave.Sgpr(i.dst));
  if constexpr (kType == kF32) {
    wave.SetSgpr(i.dst, FloatResult<kType>(wave, std::fma(a, b, c)));
  } else {
    wave.SetSgpr(i.dst, FloatResult<kType>(wave, static_cast<double>(a) * b + c));
  }
}

// The literal is the factor or the summand.
template <bool kAdds>
void FusedLiteral(Wave& wave, const Instruction& i) {
  const RoundingScope scope(wave.mode.round32);
  const float a = FloatSource<kF32>(wave, i, ReadScalar32(wave, i, i.src[0], kF32));
  const float b = FloatSource<kF32>(wave, i, ReadScalar32(wave, i, i.src[1], kF32));
  const float k = FloatSource<kF32>(wave, i, i.literal);
  wave.SetSgpr(i.dst, FloatResult<kF32>(wave, kAdds ? std::fma(a, b, k) : std::fma(a, k, b)));
}

uint32_t PackToZero(float a, float b) {
  return DoubleToHalf(a, Round::kToZero) | uint32_t{DoubleToHalf(b, Round::kToZero)} << 16;
}

const Entry kBinary[] = {
    Scalar<kF32, kF32, kF32>(64, "s_add_f32", [](float a, float b) { return a + b; }),
    Scalar<kF32, kF32, kF32>(65, "s_sub_f32", [](float a, float b) { return a - b; }),
    Scalar<kF32, kF32, kF32>(66, "s_min_f32", [](float a, float b) { return Minimum(a, b); }),
    Scalar<kF32, kF32, kF32>(67, "s_max_f32", [](float a, float b) { return Maximum(a, b); }),
    Scalar<kF32, kF32, kF32>(68, "s_mul_f32", [](float a, float b) { return a * b; }),
    Special(69, "s_fmaak_f32", &FusedLiteral<true>, 2, Kind::kScalar),
    Special(70, "s_fmamk_f32", &FusedLiteral<false>, 2, Kind::kScalar),
    Special(71, "s_fmac_f32", &FusedHandler<kF32>, 2, Kind::kScalar),
    Scalar<kB32, kF32, kF32>(72, "s_cvt_pk_rtz_f16_f32",
                             [](float a, float b) { return PackToZero(a, b); }),
    Scalar<kF16, kF16, kF16>(73, "s_add_f16", [](float a, float b) { return a + b; }),
    Scalar<kF16, kF16, kF16>(74, "s_sub_f16", [](float a, float b) { return a - b; }),
    Scalar<kF16, kF16, kF16>(75, "s_min_f16", [](float a, float b) { return Minimum(a, b); }),
    Scalar<kF16, kF16, kF16>(76, "s_max_f16", [](float a, float b) { return Maximum(a, b); }),
    Scalar<kF16, kF16, kF16>(77, "s_mul_f16", [](float a, float b) { return a * b; }),
    Special(78, "s_fmac_f16", &FusedHandler<kF16>, 2, Kind::kScalar),
};

const Entry kUnary[] = {
    Scalar<kF32, kF32>(96, "s_ceil_f32", [](float a) { return std::ceil(a); }),
    Scalar<kF32, kF32>(97, "s_floor_f32", [](float a) { return std::floor(a); }),
    Scalar<kF32, kF32>(98, "s_trunc_f32", [](float a) { return std::trunc(a); }),
    Scalar<kF32, kF32>(99, "s_rndne_f32", [](float a) { return RoundEven(a); }),
    Scalar<kF32, kB32>(100, "s_cvt_f32_i32",
                       [](uint32_t a) { return static_cast<float>(static_cast<int32_t>(a)); }),
    Scalar<kF32, kB32>(101, "s_cvt_f32_u32", [](uint32_t a) { return static_cast<float>(a); }),
    Scalar<kB32, kF32>(102, "s_cvt_i32_f32", [](float a) { return ToInteger<int32_t>(a); }),
    Scalar<kB32, kF32>(103, "s_cvt_u32_f32", [](float a) { return ToInteger<uint32_t>(a); }),
    Scalar<kF16, kF32>(104, "s_cvt_f16_f32", [](float a) { return a; }),
    Scalar<kF32, kF16>(105, "s_cvt_f32_f16", [](float a) { return a; }),
    Scalar<kF32, kB32>(106, "s_cvt_hi_f32_f16", [](uint32_t a) { return HalfToFloat(a >> 16); }),
    Scalar<kF16, kF16>(107, "s_ceil_f16", [](float a) { return std::ceil(a); }),
    Scalar<kF16, kF16>(108, "s_floor_f16", [](float a) { return std::floor(a); }),
    Scalar<kF16, kF16>(109, "s_trunc_f16", [](float a) { return std::trunc(a); }),
    Scalar<kF16, kF16>(110, "s_rndne_f16", [](float a) { return RoundEven(a); }),
};

}  // namespace

Table SopFloatTable() { return kBinary; }
Table SopFloatUnaryTable() { return kUnary; }

}  // namespace tandem::rdna
