// Operations across lanes.
#include <gtest/gtest.h>

#include "services/gpu_worker/emulator/isa/testing.h"

namespace tandem::rdna {
namespace {

// Register v0 of lane l is 100 + l.
TestWave Numbered(int lanes = 32) {
  TestWave wave(lanes);
  for (int lane = 0; lane < lanes; ++lane) wave.V(0, lane) = 100 + static_cast<uint32_t>(lane);
  wave.SetAll(1, 7);
  return wave;
}

TEST(LanesTest, SwapsInsideRows) {
  TestWave wave = Numbered();
  ASSERT_FALSE(wave.Execute(R"(v_mov_b32_dpp v2, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
                               v_mov_b32_dpp v3, v0 row_xmask:5 row_mask:0xf bank_mask:0xf
                               v_mov_b32_dpp v4, v0 row_ror:3 row_mask:0xf bank_mask:0xf
                               v_mov_b32_dpp v5, v0 row_half_mirror row_mask:0xf bank_mask:0xf
                               v_mov_b32_dpp v6, v0 row_mirror row_mask:0xf bank_mask:0xf
                               v_mov_b32_dpp v7, v0 dpp8:[7,6,5,4,3,2,1,0])")
                   .has_value());
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const int at = static_cast<int>(lane);
    EXPECT_EQ(wave.V(2, at), 100 + (lane ^ 1));
    EXPECT_EQ(wave.V(3, at), 100 + (lane ^ 5));
    EXPECT_EQ(wave.V(4, at), 100 + ((lane & 16) | ((lane - 3) & 15)));
    EXPECT_EQ(wave.V(5, at), 100 + (lane ^ 7));
    EXPECT_EQ(wave.V(6, at), 100 + (lane ^ 15));
    EXPECT_EQ(wave.V(7, at), 100 + (lane ^ 7));
  }
}

TEST(LanesTest, LeavesOrZeroesLanesWithoutASource) {
  TestWave wave = Numbered();
  ASSERT_FALSE(wave.Execute(R"(v_mov_b32_dpp v1, v0 row_shr:2 row_mask:0xf bank_mask:0xf
                      v_mov_b32_dpp v2, v0 row_shr:2 row_mask:0xf bank_mask:0xf bound_ctrl:1
                      v_mov_b32_dpp v3, v0 row_shl:1 row_mask:0x2 bank_mask:0x1)")
                   .has_value());
  EXPECT_EQ(wave.V(1, 0), 7u) << "kept";
  EXPECT_EQ(wave.V(1, 2), 100u);
  EXPECT_EQ(wave.V(1, 17), 7u) << "a row ends";
  EXPECT_EQ(wave.V(2, 1), 0u);
  EXPECT_EQ(wave.V(3, 2), 0u) << "the row is not written";
  EXPECT_EQ(wave.V(3, 18), 119u);
  EXPECT_EQ(wave.V(3, 20), 0u) << "the bank is not written";
}

TEST(LanesTest, ReadsInactiveLanesIfAllowed) {
  TestWave wave = Numbered();
  wave.wave().SetSgpr(kExecLo, 0x55555555);
  ASSERT_FALSE(wave.Execute(R"(v_mov_b32_dpp v1, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
                      v_mov_b32_dpp v2, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf fi:1)")
                   .has_value());
  EXPECT_EQ(wave.V(1, 0), 7u);
  EXPECT_EQ(wave.V(2, 0), 101u);
}

TEST(LanesTest, PermutesRows) {
  TestWave wave = Numbered();
  wave.wave().SetSgpr(0, 0x76543210);
  wave.wave().SetSgpr(1, 0xfedcba98);
  wave.wave().SetSgpr(2, 0x01234567);
  ASSERT_FALSE(wave.Execute(R"(v_permlanex16_b32 v2, v0, s0, s1
                               v_permlane16_b32 v3, v0, s2, s1)")
                   .has_value());
  EXPECT_EQ(wave.V(2, 3), 119u);
  EXPECT_EQ(wave.V(2, 20), 104u);
  EXPECT_EQ(wave.V(3, 0), 107u);
  EXPECT_EQ(wave.V(3, 9), 109u);
}

TEST(LanesTest, ExchangesHalvesOf64Lanes) {
  TestWave wave = Numbered(64);
  ASSERT_FALSE(wave.Execute(R"(v_permlane64_b32 v2, v0)").has_value());
  EXPECT_EQ(wave.V(2, 3), 135u);
  EXPECT_EQ(wave.V(2, 40), 108u);
}

TEST(LanesTest, ReadsAndWritesOneLane) {
  TestWave wave = Numbered();
  wave.wave().SetSgpr(kExecLo, 0x30);
  wave.wave().SetSgpr(9, 35);
  ASSERT_FALSE(wave.Execute(R"(v_readfirstlane_b32 s0, v0
                               v_readlane_b32 s1, v0, 17
                               v_readlane_b32 s2, v0, s9
                               v_writelane_b32 v1, s0, 2)")
                   .has_value());
  EXPECT_EQ(wave.wave().Sgpr(0), 104u);
  EXPECT_EQ(wave.wave().Sgpr(1), 117u);
  EXPECT_EQ(wave.wave().Sgpr(2), 103u) << "the lane's number wraps";
  EXPECT_EQ(wave.V(1, 2), 104u) << "though the lane is off";
}

TEST(LanesTest, CountsLanesBelow) {
  TestWave wave(64);
  wave.wave().SetScalar64(kExecLo, 0xf0f0'0000'ffff'0000);
  ASSERT_FALSE(wave.Execute(R"(v_mbcnt_lo_u32_b32 v0, exec_lo, 0
                               v_mbcnt_hi_u32_b32 v0, exec_hi, v0)")
                   .has_value());
  EXPECT_EQ(wave.V(0, 16), 0u);
  EXPECT_EQ(wave.V(0, 31), 15u);
  EXPECT_EQ(wave.V(0, 63), 23u);
}

TEST(LanesTest, SwapsRegistersAndHalves) {
  TestWave wave = Numbered();
  wave.SetAll(2, 0xaaaabbbb);
  wave.SetAll(3, 0xccccdddd);
  ASSERT_FALSE(wave.Execute(R"(v_swap_b32 v0, v1)").has_value());
  EXPECT_EQ(wave.V(0, 4), 7u);
  EXPECT_EQ(wave.V(1, 4), 104u);
  // v_swap_b16 v2.h, v3.l, which LLVM 19 does not assemble.
  ASSERT_FALSE(wave.ExecuteWords({0x7e00cc00u | (2u | 128u) << 17 | 256u | 3u}).has_value());
  EXPECT_EQ(wave.V(2, 4), 0xddddbbbbu);
  EXPECT_EQ(wave.V(3, 4), 0xccccaaaau);
}

TEST(LanesTest, PermutesThroughLdsUnits) {
  TestWave wave = Numbered();
  wave.SetAll(2, 0);
  for (int lane = 0; lane < 32; ++lane) wave.V(2, lane) = static_cast<uint32_t>(31 - lane) * 4;
  ASSERT_FALSE(wave.Execute(R"(ds_bpermute_b32 v3, v2, v0
                               ds_permute_b32 v4, v2, v0
                               ds_swizzle_b32 v5, v0 offset:0x041f)")
                   .has_value());
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(wave.V(3, static_cast<int>(lane)), 131 - lane);
    EXPECT_EQ(wave.V(4, static_cast<int>(lane)), 131 - lane);
    EXPECT_EQ(wave.V(5, static_cast<int>(lane)), 100 + (lane ^ 1));
  }
  wave.wave().SetSgpr(kExecLo, 1);
  ASSERT_FALSE(wave.Execute(R"(ds_bpermute_b32 v3, v2, v0)").has_value());
  EXPECT_EQ(wave.V(3, 0), 0u) << "lane 31 is off";
}

}  // namespace
}  // namespace tandem::rdna
