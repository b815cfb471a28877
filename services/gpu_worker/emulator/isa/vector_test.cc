// Vector operations of one lane against plain arithmetic, with odd values.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "services/gpu_worker/emulator/isa/numbers.h"
#include "services/gpu_worker/emulator/isa/testing.h"

namespace tandem::rdna {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormal = 0x1p-140f;
const std::vector<float> kOddFloats = {0.0f,   -0.0f,     1.0f,      -1.5f,     65504.0f,   1e30f,
                                       -1e30f, 0x1p-126f, kDenormal, kInfinity, -kInfinity, kNan};

float Flushed(float value) { return AsFloat(Flush32(AsBits(value))); }

// Both are not numbers, or both have the same bits.
void ExpectSame(float got, float want, float a, float b) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << a << ", " << b;
  } else {
    EXPECT_EQ(AsBits(got), AsBits(want)) << a << ", " << b << ": " << got << " is not " << want;
  }
}

template <class Reference>
void CheckFloats(const std::string& code, Reference reference) {
  for (const float a : kOddFloats) {
    for (const float b : kOddFloats) {
      TestWave wave;
      wave.SetFloat(0, a);
      wave.SetFloat(1, b);
      wave.SetFloat(2, 3.0f);
      ASSERT_FALSE(wave.Execute(code).has_value());
      ExpectSame(wave.Float(2), Flushed(reference(Flushed(a), Flushed(b))), a, b);
    }
  }
}

TEST(VectorFloatTest, ComputesAsIeeeWithDenormalsAsZero) {
  CheckFloats(R"(v_add_f32_e32 v2, v0, v1)", [](float a, float b) { return a + b; });
  CheckFloats(R"(v_sub_f32_e32 v2, v0, v1)", [](float a, float b) { return a - b; });
  CheckFloats(R"(v_subrev_f32_e32 v2, v0, v1)", [](float a, float b) { return b - a; });
  CheckFloats(R"(v_mul_f32_e32 v2, v0, v1)", [](float a, float b) { return a * b; });
  CheckFloats(R"(v_fmac_f32_e32 v2, v0, v1)",
              [](float a, float b) { return std::fma(a, b, 3.0f); });
  CheckFloats(R"(v_fma_f32 v2, v0, v1, v2)", [](float a, float b) { return std::fma(a, b, 3.0f); });
  CheckFloats(R"(v_fmamk_f32 v2, v0, 0x40490fdb, v1)",
              [](float a, float b) { return std::fma(a, AsFloat(0x40490fdb), b); });
  CheckFloats(R"(v_fmaak_f32 v2, v0, v1, 0x40490fdb)",
              [](float a, float b) { return std::fma(a, b, AsFloat(0x40490fdb)); });
  CheckFloats(R"(v_max_f32_e32 v2, v0, v1)",
              [](float a, float b) { return a == b && std::signbit(a) ? b : std::fmax(a, b); });
  CheckFloats(R"(v_rndne_f32_e32 v2, v0)", [](float a, float) { return std::nearbyint(a); });
  CheckFloats(R"(v_floor_f32_e32 v2, v0)", [](float a, float) { return std::floor(a); });
}

TEST(VectorFloatTest, OrdersZerosInMinimumAndMaximum) {
  for (const bool swapped : {false, true}) {
    TestWave wave;
    wave.SetFloat(0, swapped ? 0.0f : -0.0f);
    wave.SetFloat(1, swapped ? -0.0f : 0.0f);
    ASSERT_FALSE(wave.Execute(R"(v_min_f32_e32 v2, v0, v1
                                 v_max_f32_e32 v3, v0, v1)")
                     .has_value());
    EXPECT_EQ(wave.V(2, 0), 0x80000000u);
    EXPECT_EQ(wave.V(3, 0), 0u);
  }
}

TEST(VectorFloatTest, KeepsDenormalsIfTheModeSays) {
  TestWave wave;
  wave.SetFloat(0, kDenormal);
  ASSERT_FALSE(wave.Execute(R"(v_add_f32_e32 v1, v0, v0)").has_value());
  EXPECT_EQ(wave.Float(1), 0.0f);
  ASSERT_FALSE(wave.Execute(R"(s_denorm_mode 15
                               v_add_f32_e32 v1, v0, v0)")
                   .has_value());
  EXPECT_EQ(wave.Float(1), 2 * kDenormal);
}

TEST(VectorFloatTest, RoundsAsTheModeSays) {
  // 1 + 2^-24 lies half way between two floats; 1 + 3 * 2^-25 above the half.
  const std::vector<std::pair<int, uint32_t>> modes = {
      {0, 0x3f800000}, {1, 0x3f800001}, {2, 0x3f800000}, {3, 0x3f800000}};
  for (const auto& [mode, bits] : modes) {
    TestWave wave;
    wave.wave().SetMode(0xc0 | static_cast<uint32_t>(mode));
    wave.SetFloat(0, 1.0f);
    wave.SetFloat(1, 0x1p-24f);
    ASSERT_FALSE(wave.Execute(R"(v_add_f32_e32 v2, v0, v1)").has_value());
    EXPECT_EQ(wave.V(2, 0), bits) << "mode " << mode;
  }
}

TEST(VectorFloatTest, AppliesModifiersInTheirOrder) {
  TestWave wave;
  wave.SetFloat(0, -3.0f);
  wave.SetFloat(1, 0.25f);
  ASSERT_FALSE(wave.Execute(R"(v_add_f32_e64 v2, -|v0|, v1 mul:4
                               v_add_f32_e64 v3, |v0|, v1 clamp
                               v_mul_f32_e64 v4, -v0, v1 div:2)")
                   .has_value());
  EXPECT_EQ(wave.Float(2), -11.0f);
  EXPECT_EQ(wave.Float(3), 1.0f);
  EXPECT_EQ(wave.Float(4), 0.375f);
  wave.SetFloat(0, kNan);
  ASSERT_FALSE(wave.Execute(R"(v_add_f32_e64 v3, |v0|, v1 clamp)").has_value());
  EXPECT_EQ(wave.Float(3), 0.0f) << "clamp makes 0 of NaN";
}

TEST(VectorFloatTest, ApproximatesWithinAnUlp) {
  for (const float a : {0.3f, 1.0f, 2.0f, 7.7f, 1234.5f, 1e-20f}) {
    TestWave wave;
    wave.SetFloat(0, a);
    ASSERT_FALSE(wave.Execute(R"(v_rcp_f32_e32 v1, v0
                                 v_rsq_f32_e32 v2, v0
                                 v_log_f32_e32 v3, v0
                                 v_exp_f32_e32 v4, v3
                                 v_sqrt_f32_e32 v5, v0)")
                     .has_value());
    EXPECT_FLOAT_EQ(wave.Float(1), 1 / a);
    EXPECT_FLOAT_EQ(wave.Float(2), 1 / std::sqrt(a));
    EXPECT_FLOAT_EQ(wave.Float(3), std::log2(a));
    EXPECT_NEAR(wave.Float(4), a, a * 1e-5f);
    EXPECT_FLOAT_EQ(wave.Float(5), std::sqrt(a));
  }
  TestWave wave;
  wave.SetFloat(0, 0.0f);
  ASSERT_FALSE(wave.Execute(R"(v_rcp_f32_e32 v1, v0)").has_value());
  EXPECT_EQ(wave.Float(1), kInfinity);
}

TEST(VectorConversionTest, SaturatesIntegers) {
  const std::vector<std::pair<float, int32_t>> cases = {
      {1.9f, 1}, {-1.9f, -1}, {3e9f, 2147483647}, {-3e9f, -2147483647 - 1}, {kNan, 0}};
  for (const auto& [from, to] : cases) {
    TestWave wave;
    wave.SetFloat(0, from);
    ASSERT_FALSE(wave.Execute(R"(v_cvt_i32_f32_e32 v1, v0
                                 v_cvt_u32_f32_e32 v2, v0)")
                     .has_value());
    EXPECT_EQ(static_cast<int32_t>(wave.V(1, 0)), to);
    EXPECT_EQ(wave.V(2, 0), to < 0 ? 0u : from == 3e9f ? 3000000000u : static_cast<uint32_t>(to));
  }
}

// All float16 numbers, by the definition of the format.
double HalfByDefinition(uint32_t half) {
  const int exponent = static_cast<int>(half >> 10 & 31);
  const double mantissa = half & 0x3ff;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(NumbersTest, Float16HasItsValues) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const bool finite = (half & 0x7c00) != 0x7c00;
    if (!finite) continue;
    ASSERT_EQ(HalfToFloat(half), HalfByDefinition(half)) << half;
    ASSERT_EQ(FloatToHalf(HalfToFloat(half)), half);
    ASSERT_EQ(DoubleToHalf(HalfToFloat(half)), half);
  }
  EXPECT_EQ(HalfToFloat(0x7c00), kInfinity);
  EXPECT_TRUE(std::isnan(HalfToFloat(0x7e01)));
}

TEST(NumbersTest, Float16RoundsToTheNearestAndTiesToEven) {
  for (uint32_t half = 0; half < 0x7bff; ++half) {
    const double low = HalfByDefinition(half), high = HalfByDefinition(half + 1);
    const double middle = (low + high) / 2;
    const uint32_t even = (half & 1) == 0 ? half : half + 1;
    ASSERT_EQ(DoubleToHalf(middle), even) << half;
    ASSERT_EQ(FloatToHalf(static_cast<float>(middle)), even) << half;
    ASSERT_EQ(DoubleToHalf(std::nextafter(middle, low)), half);
    ASSERT_EQ(DoubleToHalf(std::nextafter(middle, high)), half + 1);
    ASSERT_EQ(DoubleToHalf(middle, Round::kToZero), half);
    ASSERT_EQ(DoubleToHalf(middle, Round::kUp), half + 1);
    ASSERT_EQ(DoubleToHalf(-middle, Round::kUp), half | 0x8000);
    ASSERT_EQ(DoubleToHalf(-middle, Round::kDown), (half + 1) | 0x8000);
  }
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(DoubleToHalf(1e9, Round::kToZero), 0x7bff);
}

TEST(VectorHalfTest, WritesOneHalfOfTheRegister) {
  TestWave wave;
  wave.SetFloat(0, 1.5f);
  wave.SetAll(1, 0xaaaabbbb);
  ASSERT_FALSE(wave.Execute(R"(v_cvt_f16_f32_e32 v1, v0)").has_value());
  EXPECT_EQ(wave.V(1, 0), 0xaaaa3e00u);
  wave.SetAll(2, 0x40003c00);  // 2 above 1
  wave.SetAll(3, 0);
  ASSERT_FALSE(wave.Execute(R"(v_add_nc_u16 v3, v2, v2 op_sel:[0,1,1])").has_value());
  EXPECT_EQ(wave.V(3, 0), 0x7c000000u) << "the two halves added, in the high half";
}

struct IntegerCase {
  uint32_t a, b;
};
const std::vector<IntegerCase> kIntegers = {
    {0, 0},         {1, 31}, {1, 32}, {0x80000001, 33}, {0xffffffff, 5}, {0x12345678, 0xffffffff},
    {7, 0x80000000}};

template <class Reference>
void CheckIntegers(const std::string& code, Reference reference) {
  for (const auto& [a, b] : kIntegers) {
    TestWave wave;
    wave.SetAll(0, a);
    wave.SetAll(1, b);
    wave.SetAll(2, 0x01020304);
    ASSERT_FALSE(wave.Execute(code).has_value());
    EXPECT_EQ(wave.V(3, 5), static_cast<uint32_t>(reference(a, b, 0x01020304u)))
        << code << " of " << a << ", " << b;
  }
}

TEST(VectorIntegerTest, WrapsAndShiftsByTheLowBits) {
  using U = uint32_t;
  using S = int32_t;
  CheckIntegers(R"(v_lshlrev_b32_e32 v3, v1, v0)", [](U a, U b, U) { return a << (b % 32); });
  CheckIntegers(R"(v_lshrrev_b32_e32 v3, v1, v0)", [](U a, U b, U) { return a >> (b % 32); });
  CheckIntegers(R"(v_ashrrev_i32_e32 v3, v1, v0)",
                [](U a, U b, U) { return static_cast<S>(a) >> (b % 32); });
  CheckIntegers(R"(v_add_nc_u32_e32 v3, v0, v1)", [](U a, U b, U) { return a + b; });
  CheckIntegers(R"(v_add3_u32 v3, v0, v1, v2)", [](U a, U b, U c) { return a + b + c; });
  CheckIntegers(R"(v_mul_lo_u32 v3, v0, v1)", [](U a, U b, U) { return a * b; });
  CheckIntegers(R"(v_mul_hi_u32 v3, v0, v1)", [](U a, U b, U) { return (uint64_t{a} * b) >> 32; });
  CheckIntegers(R"(v_mul_hi_i32 v3, v0, v1)",
                [](U a, U b, U) { return (int64_t{static_cast<S>(a)} * static_cast<S>(b)) >> 32; });
  CheckIntegers(R"(v_mad_u32_u24 v3, v0, v1, v2)",
                [](U a, U b, U c) { return (a & 0xffffff) * (b & 0xffffff) + c; });
  CheckIntegers(R"(v_bfe_u32 v3, v0, 4, 8)", [](U a, U, U) { return a >> 4 & 0xff; });
  CheckIntegers(R"(v_bfe_i32 v3, v0, 4, 8)",
                [](U a, U, U) { return static_cast<int8_t>(a >> 4 & 0xff); });
  CheckIntegers(R"(v_bfi_b32 v3, v0, v1, v2)", [](U a, U b, U c) { return (a & b) | (~a & c); });
  CheckIntegers(R"(v_lshl_add_u32 v3, v0, v1, v2)",
                [](U a, U b, U c) { return (a << (b % 32)) + c; });
  CheckIntegers(R"(v_and_or_b32 v3, v0, v1, v2)", [](U a, U b, U c) { return (a & b) | c; });
  CheckIntegers(R"(v_alignbit_b32 v3, v0, v1, 8)", [](U a, U b, U) { return a << 24 | b >> 8; });
  CheckIntegers(R"(v_max3_u32 v3, v0, v1, v2)",
                [](U a, U b, U c) { return std::max(std::max(a, b), c); });
  CheckIntegers(R"(v_perm_b32 v3, v0, v1, 0xc0c0403)",
                [](U a, U b, U) { return (a & 0xff) << 8 | b >> 24; });
  CheckIntegers(R"(v_cvt_f32_ubyte2_e32 v3, v0)",
                [](U a, U, U) { return AsBits(static_cast<float>(a >> 16 & 0xff)); });
  CheckIntegers(R"(v_add_nc_u32_e64 v3, v0, v1 clamp)",
                [](U a, U b, U) { return std::min<uint64_t>(uint64_t{a} + b, 0xffffffff); });
}

TEST(VectorIntegerTest, CarriesFromLaneToItsBit) {
  TestWave wave;
  wave.SetAll(0, 0xffffffff);
  wave.SetAll(1, 0);
  wave.V(1, 3) = 1;
  wave.V(1, 9) = 2;
  ASSERT_FALSE(wave.Execute(R"(v_add_co_u32 v2, vcc_lo, v0, v1
                               v_add_co_ci_u32_e32 v3, vcc_lo, 5, v1, vcc_lo)")
                   .has_value());
  EXPECT_EQ(wave.V(2, 3), 0u);
  EXPECT_EQ(wave.V(3, 3), 7u);
  EXPECT_EQ(wave.V(3, 9), 8u);
  EXPECT_EQ(wave.V(3, 0), 5u);
  wave.SetAll(4, 7);
  wave.wave().SetSgpr(8, 1u << 3);
  ASSERT_FALSE(wave.Execute(R"(v_cndmask_b32_e64 v5, v4, v2, s8)").has_value());
  EXPECT_EQ(wave.V(5, 3), 0u);
  EXPECT_EQ(wave.V(5, 4), 7u);
}

TEST(VectorIntegerTest, LeavesLanesThatAreOff) {
  TestWave wave;
  wave.wave().SetSgpr(kExecLo, 0x5);
  wave.SetAll(0, 1);
  wave.SetAll(1, 9);
  ASSERT_FALSE(wave.Execute(R"(v_mov_b32_e32 v1, v0
                               v_cmp_eq_u32_e32 vcc_lo, v1, v0)")
                   .has_value());
  EXPECT_EQ(wave.V(1, 0), 1u);
  EXPECT_EQ(wave.V(1, 1), 9u);
  EXPECT_EQ(wave.wave().Sgpr(kVccLo), 0x5u);
  ASSERT_FALSE(wave.Execute(R"(v_cmpx_lt_u32_e32 3, v1)").has_value());
  EXPECT_EQ(wave.wave().Sgpr(kExecLo), 0u);
}

TEST(VectorCompareTest, TreatsNotANumberAsUnordered) {
  TestWave wave;
  wave.SetFloat(0, kNan);
  wave.SetFloat(1, 1.0f);
  ASSERT_FALSE(wave.Execute(R"(v_cmp_lt_f32_e64 s0, v0, v1
                               v_cmp_nge_f32_e64 s1, v0, v1
                               v_cmp_u_f32_e64 s2, v0, v1
                               v_cmp_class_f32_e64 s3, v0, 3
                               v_cmp_lg_f32_e64 s4, v0, v1)")
                   .has_value());
  EXPECT_EQ(wave.wave().Sgpr(0), 0u);
  EXPECT_EQ(wave.wave().Sgpr(1), 0xffffffffu);
  EXPECT_EQ(wave.wave().Sgpr(2), 0xffffffffu);
  EXPECT_EQ(wave.wave().Sgpr(3), 0xffffffffu);
  EXPECT_EQ(wave.wave().Sgpr(4), 0u);
}

TEST(VectorDualTest, ReadsBothSourcesBeforeItWrites) {
  TestWave wave;
  wave.SetAll(0, 10);
  wave.SetAll(1, 20);
  ASSERT_FALSE(wave.Execute(R"(v_dual_mov_b32 v0, v1 :: v_dual_add_nc_u32 v1, 3, v0)").has_value());
  EXPECT_EQ(wave.V(0, 7), 20u);
  EXPECT_EQ(wave.V(1, 7), 13u);
}

}  // namespace
}  // namespace tandem::rdna
