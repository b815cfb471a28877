// VOP1: functions of one float.  Those that the hardware approximates (exp, log, rcp, rsq, sqrt,
// sin, cos: within 1 ulp there) are computed in double and rounded once, so they are at least as
// exact.
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

using enum Type;

constexpr int Unary(int op) { return kVop1Base + op; }

// The hardware's argument of sin and cos is in turns, and those beyond 256 give 0 and 1.
constexpr double kTwoPi = 6.283185307179586;

double Sine(double turns) {
  if (!std::isfinite(turns)) return std::numeric_limits<double>::quiet_NaN();
  return std::fabs(turns) > 256 ? 0.0 : std::sin((turns - std::floor(turns)) * kTwoPi);
}
double Cosine(double turns) {
  if (!std::isfinite(turns)) return std::numeric_limits<double>::quiet_NaN();
  return std::fabs(turns) > 256 ? 1.0 : std::cos((turns - std::floor(turns)) * kTwoPi);
}

// x - floor(x), below 1.
template <class Float>
Float Fraction(Float value, Float below_one) {
  if (std::isinf(value)) return std::numeric_limits<Float>::quiet_NaN();
  return Minimum(value - std::floor(value), below_one);
}

int ExponentOf(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  int exponent = 0;
  std::frexp(value, &exponent);
  return exponent;
}

template <class Float>
Float MantissaOf(Float value) {
  if (!std::isfinite(value)) return value;
  int exponent = 0;
  return std::frexp(value, &exponent);
}

const Entry kFloats[] = {
    Vector<kF64, kF64>(Unary(23), "v_trunc_f64", [](double a) { return std::trunc(a); }),
    Vector<kF64, kF64>(Unary(24), "v_ceil_f64", [](double a) { return std::ceil(a); }),
    Vector<kF64, kF64>(Unary(25), "v_rndne_f64", [](double a) { return RoundEven(a); }),
    Vector<kF64, kF64>(Unary(26), "v_floor_f64", [](double a) { return std::floor(a); }),
    Vector<kF64, kF64>(Unary(62), "v_fract_f64",
                       [](double a) { return Fraction(a, 0x1.fffffffffffffp-1); }),
    Vector<kF64, kF64>(Unary(47), "v_rcp_f64", [](double a) { return 1.0 / a; }),
    Vector<kF64, kF64>(Unary(49), "v_rsq_f64", [](double a) { return 1.0 / std::sqrt(a); }),
    Vector<kF64, kF64>(Unary(52), "v_sqrt_f64", [](double a) { return std::sqrt(a); }),
    Vector<kB32, kF64>(Unary(60), "v_frexp_exp_i32_f64",
                       [](double a) { return static_cast<uint32_t>(ExponentOf(a)); }),
    Vector<kF64, kF64>(Unary(61), "v_frexp_mant_f64", [](double a) { return MantissaOf(a); }),

    Vector<kF32, kF32>(Unary(32), "v_fract_f32",
                       [](float a) { return Fraction(a, 0x1.fffffep-1f); }),
    Vector<kF32, kF32>(Unary(33), "v_trunc_f32", [](float a) { return std::trunc(a); }),
    Vector<kF32, kF32>(Unary(34), "v_ceil_f32", [](float a) { return std::ceil(a); }),
    Vector<kF32, kF32>(Unary(35), "v_rndne_f32", [](float a) { return RoundEven(a); }),
    Vector<kF32, kF32>(Unary(36), "v_floor_f32", [](float a) { return std::floor(a); }),
    Vector<kF32, kF32>(Unary(37), "v_exp_f32",
                       [](float a) { return std::exp2(static_cast<double>(a)); }),
    Vector<kF32, kF32>(Unary(39), "v_log_f32",
                       [](float a) { return std::log2(static_cast<double>(a)); }),
    Vector<kF32, kF32>(Unary(42), "v_rcp_f32", [](float a) { return 1.0f / a; }),
    Vector<kF32, kF32>(Unary(43), "v_rcp_iflag_f32", [](float a) { return 1.0f / a; }),
    Vector<kF32, kF32>(Unary(46), "v_rsq_f32",
                       [](float a) { return 1.0 / std::sqrt(static_cast<double>(a)); }),
    Vector<kF32, kF32>(Unary(51), "v_sqrt_f32", [](float a) { return std::sqrt(a); }),
    Vector<kF32, kF32>(Unary(53), "v_sin_f32", [](float a) { return Sine(a); }),
    Vector<kF32, kF32>(Unary(54), "v_cos_f32", [](float a) { return Cosine(a); }),
    Vector<kB32, kF32>(Unary(63), "v_frexp_exp_i32_f32",
                       [](float a) { return static_cast<uint32_t>(ExponentOf(a)); }),
    Vector<kF32, kF32>(Unary(64), "v_frexp_mant_f32", [](float a) { return MantissaOf(a); }),

    Vector<kF16, kF16>(Unary(84), "v_rcp_f16", [](float a) { return 1.0 / a; }),
    Vector<kF16, kF16>(Unary(85), "v_sqrt_f16",
                       [](float a) { return std::sqrt(static_cast<double>(a)); }),
    Vector<kF16, kF16>(Unary(86), "v_rsq_f16",
                       [](float a) { return 1.0 / std::sqrt(static_cast<double>(a)); }),
    Vector<kF16, kF16>(Unary(87), "v_log_f16",
                       [](float a) { return std::log2(static_cast<double>(a)); }),
    Vector<kF16, kF16>(Unary(88), "v_exp_f16",
                       [](float a) { return std::exp2(static_cast<double>(a)); }),
    Vector<kF16, kF16>(Unary(89), "v_frexp_mant_f16", [](float a) { return MantissaOf(a); }),
    Vector<kB16, kF16>(Unary(90), "v_frexp_exp_i16_f16",
                       [](float a) { return static_cast<uint32_t>(ExponentOf(a)); }),
    Vector<kF16, kF16>(Unary(91), "v_floor_f16", [](float a) { return std::floor(a); }),
    Vector<kF16, kF16>(Unary(92), "v_ceil_f16", [](float a) { return std::ceil(a); }),
    Vector<kF16, kF16>(Unary(93), "v_trunc_f16", [](float a) { return std::trunc(a); }),
    Vector<kF16, kF16>(Unary(94), "v_rndne_f16", [](float a) { return RoundEven(a); }),
    Vector<kF16, kF16>(Unary(95), "v_fract_f16", [](float a) { return Fraction(a, 0x1.ffcp-1f); }),
    Vector<kF16, kF16>(Unary(96), "v_sin_f16", [](float a) { return Sine(a); }),
    Vector<kF16, kF16>(Unary(97), "v_cos_f16", [](float a) { return Cosine(a); }),
};

}  // namespace

Table FloatTable() { return kFloats; }

}  // namespace tandem::rdna
