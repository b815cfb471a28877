// Scalar operations: results and SCC, EXEC, constants, hardware registers.
#include <gtest/gtest.h>

#include <cmath>

#include "services/gpu_worker/emulator/isa/numbers.h"
#include "services/gpu_worker/emulator/isa/testing.h"

namespace tandem::rdna {
namespace {

struct Result {
  uint32_t value;
  bool scc;
};

// s2 after the code with a in s0 and b in s1.
Result Compute(const std::string& code, uint32_t a, uint32_t b, bool scc = false) {
  TestWave wave;
  wave.wave().SetSgpr(0, a);
  wave.wave().SetSgpr(1, b);
  wave.wave().scc = scc;
  EXPECT_FALSE(wave.Execute(code).has_value());
  return {wave.wave().Sgpr(2), wave.wave().scc};
}

void ExpectResult(const Result& got, uint32_t value, bool scc) {
  EXPECT_EQ(got.value, value);
  EXPECT_EQ(got.scc, scc);
}

TEST(ScalarTest, AddsWithCarryAndOverflow) {
  ExpectResult(Compute(R"(s_add_u32 s2, s0, s1)", 0xffffffff, 1), 0, true);
  ExpectResult(Compute(R"(s_add_i32 s2, s0, s1)", 0x7fffffff, 1), 0x80000000, true);
  ExpectResult(Compute(R"(s_add_i32 s2, s0, s1)", 0xffffffff, 1), 0, false);
  ExpectResult(Compute(R"(s_addc_u32 s2, s0, s1)", 5, 6, true), 12, false);
  ExpectResult(Compute(R"(s_sub_u32 s2, s0, s1)", 1, 2), 0xffffffff, true);
  ExpectResult(Compute(R"(s_subb_u32 s2, s0, s1)", 1, 1, true), 0xffffffff, true);
  ExpectResult(Compute(R"(s_sub_i32 s2, s0, s1)", 0x80000000, 1), 0x7fffffff, true);
}

TEST(ScalarTest, ShiftsByTheLowBitsAndTellsZero) {
  ExpectResult(Compute(R"(s_lshl_b32 s2, s0, s1)", 3, 33), 6, true);
  ExpectResult(Compute(R"(s_lshr_b32 s2, s0, s1)", 1, 1), 0, false);
  ExpectResult(Compute(R"(s_ashr_i32 s2, s0, s1)", 0x80000000, 63), 0xffffffff, true);
  ExpectResult(Compute(R"(s_lshl3_add_u32 s2, s0, s1)", 0x20000000, 7), 7, true);
}

TEST(ScalarTest, TakesBitFields) {
  ExpectResult(Compute(R"(s_bfe_u32 s2, s0, 0x80004)", 0xabcd, 0), 0xbc, true);
  ExpectResult(Compute(R"(s_bfe_i32 s2, s0, 0x80004)", 0xfbcd, 0), 0xffffffbc, true);
  ExpectResult(Compute(R"(s_bfm_b32 s2, 5, 2)", 0, 0), 0x7c, false);
  ExpectResult(Compute(R"(s_brev_b32 s2, s0)", 1, 0), 0x80000000, false);
  ExpectResult(Compute(R"(s_ctz_i32_b32 s2, s0)", 0, 0), 0xffffffff, false);
  ExpectResult(Compute(R"(s_ctz_i32_b32 s2, s0)", 0x50, 0), 4, false);
  ExpectResult(Compute(R"(s_bcnt1_i32_b32 s2, s0)", 0xff01, 0), 9, true);
}

TEST(ScalarTest, SelectsAndCompares) {
  ExpectResult(Compute(R"(s_cmp_lt_i32 s0, s1
                          s_cselect_b32 s2, s0, s1)",
                       0xffffffff, 1),
               0xffffffff, true);
  ExpectResult(Compute(R"(s_cmp_lt_u32 s0, s1
                          s_cselect_b32 s2, s0, s1)",
                       0xffffffff, 1),
               1, false);
  ExpectResult(Compute(R"(s_min_u32 s2, s0, s1)", 4, 3), 3, false);
  ExpectResult(Compute(R"(s_max_i32 s2, s0, s1)", 0xffffffff, 3), 3, false);
  ExpectResult(Compute(R"(s_cmpk_lt_u32 s0, 0xfff0
                          s_movk_i32 s2, 0x8000)",
                       0xffef, 0),
               0xffff8000, true);
  ExpectResult(Compute(R"(s_bitcmp1_b32 s0, 4
                          s_mov_b32 s2, 0.5)",
                       0x10, 0),
               0x3f000000, true);
}

TEST(ScalarTest, SavesExecAndChangesIt) {
  TestWave wave;
  wave.wave().SetSgpr(kExecLo, 0xff);
  wave.wave().SetSgpr(0, 0xf0f0);
  ASSERT_FALSE(wave.Execute(R"(s_and_saveexec_b32 s1, s0)").has_value());
  EXPECT_EQ(wave.wave().Sgpr(1), 0xffu);
  EXPECT_EQ(wave.wave().Sgpr(kExecLo), 0xf0u);
  EXPECT_TRUE(wave.wave().scc);
  ASSERT_FALSE(wave.Execute(R"(s_and_not1_saveexec_b32 s2, s1)").has_value());
  EXPECT_EQ(wave.wave().Sgpr(kExecLo), 0x0fu);
}

TEST(ScalarTest, KeepsPairsOf64Bits) {
  TestWave wave;
  wave.wave().SetScalar64(2, 0x1'8000'0000);
  ASSERT_FALSE(wave.Execute(R"(s_lshl_b64 s[4:5], s[2:3], 4
                               s_mov_b64 s[6:7], -1)")
                   .has_value());
  EXPECT_EQ(wave.wave().Scalar64(4), 0x18'0000'0000u);
  EXPECT_EQ(wave.wave().Scalar64(6), ~uint64_t{0});
}

TEST(ScalarTest, ReadsAndWritesTheMode) {
  TestWave wave;
  ASSERT_FALSE(wave.Execute(R"(s_round_mode 3
                               s_getreg_b32 s0, hwreg(HW_REG_MODE, 0, 8)
                               s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 5
                               s_getreg_b32 s1, hwreg(HW_REG_MODE, 0, 8))")
                   .has_value());
  EXPECT_EQ(wave.wave().Sgpr(0), 0xc3u);
  EXPECT_EQ(wave.wave().Sgpr(1), 0x53u);
}

TEST(ScalarTest, ComputesFloatsOnRdna35Only) {
  TestWave wave;
  wave.wave().SetSgpr(0, AsBits(1.5f));
  wave.wave().SetSgpr(1, AsBits(2.0f));
  wave.wave().SetSgpr(2, AsBits(1.0f));
  ASSERT_FALSE(wave.Execute(R"(s_fmac_f32 s2, s0, s1
                               s_cvt_i32_f32 s3, s2)")
                   .has_value());
  EXPECT_EQ(wave.wave().Sgpr(2), AsBits(4.0f));
  EXPECT_EQ(wave.wave().Sgpr(3), 4u);
  const std::vector<uint32_t> words = Assembled(R"(s_fmac_f32 s2, s0, s1)");
  std::string unknown;
  EXPECT_EQ(Decode(Gfx::k1103, words.data(), words.size(), unknown).handler, nullptr);
}

TEST(ScalarTest, LoadsFromMemoryAndFaultsOutsideIt) {
  TestWave wave;
  wave.memory().Map(0x1000, 16)[5] = 77;
  wave.wave().SetScalar64(2, 0x1000);
  ASSERT_FALSE(wave.Execute(R"(s_load_b64 s[4:5], s[2:3], 0x10)").has_value());
  EXPECT_EQ(wave.wave().Sgpr(5), 77u);
  const auto fault = wave.Execute(R"(s_load_b64 s[4:5], s[2:3], 0x40)");
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->address, 0x1040u);
  EXPECT_EQ(fault->what, "s_load_b64 of memory that is not mapped");
}

}  // namespace
}  // namespace tandem::rdna
