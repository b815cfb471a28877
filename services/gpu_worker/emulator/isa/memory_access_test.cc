// Loads, stores and atomic operations of global, buffer, scratch and LDS memory.
#include <gtest/gtest.h>

#include "services/gpu_worker/emulator/isa/testing.h"

namespace tandem::rdna {
namespace {

// v[0:1] of lane l is the address of word l.
TestWave Addressed(uint64_t address) {
  TestWave wave;
  for (int lane = 0; lane < 32; ++lane) {
    wave.V(0, lane) = static_cast<uint32_t>(address + 4 * static_cast<uint64_t>(lane));
    wave.V(1, lane) = static_cast<uint32_t>(address >> 32);
  }
  return wave;
}

TEST(GlobalMemoryTest, LoadsAndStoresEveryWidth) {
  TestWave wave = Addressed(0x1'0000'1000);
  auto& words = wave.memory().Map(0x1'0000'1000, 64);
  for (uint32_t i = 0; i < 64; ++i) words[i] = 0x8081f200 + i;
  ASSERT_FALSE(wave.Execute(R"(global_load_b128 v[4:7], v[0:1], off offset:8
                               global_load_u8 v8, v[0:1], off
                               global_load_i16 v9, v[0:1], off offset:2
                               global_load_d16_hi_u8 v8, v[0:1], off offset:1
                               global_store_b16 v[0:1], v9, off offset:128
                               global_store_d16_hi_b8 v[0:1], v9, off offset:131)")
                   .has_value());
  EXPECT_EQ(wave.V(4, 3), 0x8081f205u);
  EXPECT_EQ(wave.V(7, 3), 0x8081f208u);
  EXPECT_EQ(wave.V(8, 3), 0x00f20003u);
  EXPECT_EQ(wave.V(9, 3), 0xffff8081u);
  EXPECT_EQ(words[32 + 3], 0xff818081u);
}

TEST(GlobalMemoryTest, AddsAScalarBaseAndASignedOffset) {
  TestWave wave;
  auto& words = wave.memory().Map(0x2000, 32);
  for (uint32_t i = 0; i < 32; ++i) words[i] = i;
  wave.SetAll(0, 16);
  wave.wave().SetScalar64(4, 0x2000);
  ASSERT_FALSE(wave.Execute(R"(global_load_b32 v1, v0, s[4:5] offset:-4)").has_value());
  EXPECT_EQ(wave.V(1, 0), 3u);
}

TEST(GlobalMemoryTest, FaultsWithTheLaneThatIsOutside) {
  TestWave wave = Addressed(0x1000);
  wave.memory().Map(0x1000, 30);
  const auto fault = wave.Execute(R"(global_load_b32 v4, v[0:1], off)");
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->what, "global_load_b32 of memory that is not mapped, by lane 30");
  EXPECT_EQ(fault->address, 0x1000u + 30 * 4);
  // No fault if those lanes are off.
  TestWave off = Addressed(0x1000);
  off.memory().Map(0x1000, 30);
  off.wave().SetSgpr(kExecLo, 0x3fffffff);
  EXPECT_FALSE(off.Execute(R"(global_load_b32 v4, v[0:1], off)").has_value());
}

TEST(GlobalMemoryTest, ReturnsOldValuesOfAtomics) {
  TestWave wave;
  auto& words = wave.memory().Map(0x1000, 4);
  words = {100, 7, 50, 0};
  wave.wave().SetScalar64(4, 0x1000);
  wave.SetAll(0, 0);
  wave.SetAll(2, 1);
  wave.SetAll(4, 9);
  wave.SetAll(5, 7);
  ASSERT_FALSE(wave.Execute(R"(global_atomic_add_u32 v1, v0, v2, s[4:5] glc
                               global_atomic_cmpswap_b32 v3, v0, v[4:5], s[4:5] offset:4 glc
                               global_atomic_inc_u32 v0, v4, s[4:5] offset:8
                               global_atomic_max_u32 v0, v4, s[4:5] offset:12)")
                   .has_value());
  EXPECT_EQ(words, (std::vector<uint32_t>{132, 9, 1, 9})) << "50 wraps to 0, then 31 steps of 10";
  EXPECT_EQ(wave.V(1, 31), 131u);
  EXPECT_EQ(wave.V(3, 0), 7u);
  EXPECT_EQ(wave.V(3, 1), 9u);
}

TEST(BufferTest, GivesZeroOutsideTheBounds) {
  TestWave wave;
  auto& words = wave.memory().Map(0x3000, 64);
  for (uint32_t i = 0; i < 64; ++i) words[i] = 100 + i;
  wave.wave().SetScalar64(4, 0x3000);
  wave.wave().SetSgpr(6, 40);
  wave.wave().SetSgpr(7, 3u << 28);
  for (int lane = 0; lane < 32; ++lane) wave.V(0, lane) = static_cast<uint32_t>(lane) * 4;
  ASSERT_FALSE(wave.Execute(R"(buffer_load_b32 v1, v0, s[4:7], 0 offen offset:4
                               v_mov_b32_e32 v2, 5
                               buffer_store_b32 v2, v0, s[4:7], 0 offen)")
                   .has_value());
  EXPECT_EQ(wave.V(1, 0), 101u);
  EXPECT_EQ(wave.V(1, 8), 109u);
  EXPECT_EQ(wave.V(1, 9), 0u);
  EXPECT_EQ(words[9], 5u);
  EXPECT_EQ(words[10], 110u);
}

TEST(ScratchTest, KeepsLanesApartAndFaultsOutside) {
  TestWave wave;
  for (int lane = 0; lane < 32; ++lane) wave.V(0, lane) = static_cast<uint32_t>(lane);
  ASSERT_FALSE(wave.Execute(R"(scratch_store_b32 off, v0, off offset:60
                               scratch_load_b32 v1, off, off offset:60)")
                   .has_value());
  EXPECT_EQ(wave.V(1, 17), 17u);
  EXPECT_TRUE(wave.Execute(R"(scratch_load_b32 v1, off, off offset:64)").has_value());
}

TEST(LdsTest, LoadsAndStoresEveryWidth) {
  TestWave wave;
  for (int lane = 0; lane < 32; ++lane) {
    wave.V(0, lane) = static_cast<uint32_t>(lane) * 16;
    for (uint32_t word = 0; word < 4; ++word) {
      wave.V(4 + word, lane) = static_cast<uint32_t>(lane) * 10 + word;
    }
  }
  ASSERT_FALSE(wave.Execute(R"(ds_store_b128 v0, v[4:7]
                               ds_load_b64 v[8:9], v0 offset:4
                               ds_load_2addr_b32 v[10:11], v0 offset0:3 offset1:5
                               ds_load_u16_d16_hi v12, v0 offset:8)")
                   .has_value());
  EXPECT_EQ(wave.V(8, 2), 21u);
  EXPECT_EQ(wave.V(9, 2), 22u);
  EXPECT_EQ(wave.V(10, 2), 23u);
  EXPECT_EQ(wave.V(11, 2), 31u);
  EXPECT_EQ(wave.V(12, 2), 22u << 16);
}

TEST(LdsTest, ReadsZeroAndDropsWritesBeyondItsEnd) {
  TestWave wave;
  wave.SetAll(0, 1024 - 8);
  wave.SetAll(4, 1);
  wave.SetAll(8, 99);
  ASSERT_FALSE(wave.Execute(R"(ds_store_b32 v0, v4 offset:4
                               ds_store_b32 v0, v4 offset:8
                               ds_load_b128 v[8:11], v0)")
                   .has_value());
  EXPECT_EQ(wave.V(9, 0), 1u);
  EXPECT_EQ(wave.V(10, 0), 0u);
}

TEST(LdsTest, ChangesInTheOrderOfLanes) {
  TestWave wave;
  wave.SetAll(0, 0);
  wave.SetAll(1, 2);
  wave.wave().SetSgpr(kExecLo, 0xff);
  ASSERT_FALSE(wave.Execute(R"(ds_add_rtn_u32 v2, v0, v1 offset:32
                               ds_append v3 offset:32
                               ds_max_u32 v0, v3 offset:36)")
                   .has_value());
  EXPECT_EQ(wave.V(2, 5), 10u);
  EXPECT_EQ(wave.V(3, 5), 16u);
  uint32_t word = 0;
  std::memcpy(&word, wave.group().lds.data() + 32, 4);
  EXPECT_EQ(word, 24u);
}

}  // namespace
}  // namespace tandem::rdna
