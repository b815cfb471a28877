// Whole dispatches: initial registers, barriers, races, faults, threads.
#include <gtest/gtest.h>

#include <numeric>

#include "services/gpu_worker/emulator/isa/lds_race.h"
#include "services/gpu_worker/emulator/isa/testing.h"

namespace tandem::rdna {
namespace {

// Each thread's number goes through LDS to the thread with the opposite number, and to data.
// `barrier`: between the write and the read.
std::string Reverse(bool barrier) {
  return std::string(R"(v_lshlrev_b32_e32 v1, 2, v0
                        ds_store_b32 v1, v0)") +
         (barrier ? "\n"
                    R"(s_barrier)"
                  : "") +
         "\n" +
         R"(v_xor_b32_e32 v2, 0xfc, v1
            ds_load_b32 v3, v2
            s_waitcnt lgkmcnt(0)
            global_store_b32 v1, v3, s[0:1]
            s_endpgm)";
}

TEST(DispatchTest, WavesMeetAtBarriers) {
  TestDispatch test(Reverse(true), 2, 64);
  const auto fault = test.Run();
  ASSERT_FALSE(fault.has_value()) << fault->what;
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(test.data[i], 63 - i);
  EXPECT_EQ(test.counters.waves, 2u);
  EXPECT_EQ(test.counters.barriers, 2u);
  EXPECT_EQ(test.counters.stores, 2u);
  EXPECT_EQ(test.counters.lds, 4u);
}

TEST(DispatchTest, AMissingBarrierIsCaught) {
  TestDispatch test(Reverse(false), 2, 64);
  const auto fault = test.Run();
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->what.find("LDS race: wave "), 0u) << fault->what;
  TestDispatch one_wave(Reverse(false), 1, 64);
  EXPECT_FALSE(one_wave.Run().has_value()) << "the lanes of a wave need none";
}

TEST(DispatchTest, GroupsHaveTheirNumbersAndEveryThreadTakesSome) {
  // data[group * 64 + thread] = group number << 16 | size of the workgroup in waves.
  TestDispatch test(R"(s_and_b32 s4, s3, 63
                       s_lshl_b32 s5, s2, 16
                       s_or_b32 s4, s4, s5
                       s_lshl_b32 s6, s2, 8
                       v_lshlrev_b32_e32 v1, 2, v0
                       v_add_nc_u32_e32 v1, s6, v1
                       v_mov_b32_e32 v2, s4
                       global_store_b32 v1, v2, s[0:1]
                       s_endpgm)",
                    2, 64 * 40);
  test.dispatch.groups = {39, 1, 1};
  test.dispatch.first_group = {1, 0, 0};
  const auto fault = test.Run(3);
  ASSERT_FALSE(fault.has_value()) << fault->what;
  for (uint32_t i = 0; i < 64 * 40; ++i) {
    EXPECT_EQ(test.data[i], i < 64 ? 0 : i / 64 << 16 | 2) << i;
  }
  EXPECT_EQ(test.counters.waves, 78u);
}

TEST(DispatchTest, LanesBehindTheLastThreadAreOff) {
  const std::string code = R"(v_lshlrev_b32_e32 v1, 2, v0
                              global_store_b32 v1, v0, s[0:1]
                              s_endpgm)";
  TestDispatch test(code, 1, 64);
  test.dispatch.group_size = {37, 1, 1};
  test.dispatch.wave32 = false;
  test.data.assign(64, 999);
  ASSERT_FALSE(test.Run().has_value());
  EXPECT_EQ(test.data[36], 36u);
  EXPECT_EQ(test.data[37], 999u);
  EXPECT_EQ(test.counters.waves, 1u);
}

TEST(DispatchTest, PacksThreadNumbersOfThreeAxes) {
  TestDispatch test(R"(v_bfe_u32 v1, v0, 10, 10
                       v_and_b32_e32 v2, 0x3ff, v0
                       v_lshrrev_b32_e32 v3, 20, v0
                       v_lshl_add_u32 v2, v1, 3, v2
                       v_lshl_add_u32 v2, v3, 5, v2
                       v_lshlrev_b32_e32 v2, 2, v2
                       global_store_b32 v2, v0, s[0:1]
                       s_endpgm)",
                    1, 64);
  test.dispatch.group_size = {8, 4, 2};
  ASSERT_FALSE(test.Run().has_value());
  EXPECT_EQ(test.data[63], 7u | 3u << 10 | 1u << 20);
}

TEST(DispatchTest, GroupsThatWaitForEachOtherGoOn) {
  // Each of 4 workgroups adds 1 to data[0] and waits until it is 4.
  TestDispatch test(R"(v_mov_b32_e32 v1, 0
                       v_mov_b32_e32 v2, 1
                       s_mov_b32 exec_lo, 1
                       global_atomic_add_u32 v1, v2, s[0:1]
                       global_load_b32 v3, v1, s[0:1] glc
                       s_waitcnt vmcnt(0)
                       v_readfirstlane_b32 s4, v3
                       s_cmp_lt_u32 s4, 4
                       s_cbranch_scc1 65530
                       s_endpgm)",
                    1, 4);
  test.dispatch.groups = {4, 1, 1};
  const auto fault = test.Run(1);
  ASSERT_FALSE(fault.has_value()) << fault->what;
  EXPECT_EQ(test.data[0], 4u);
}

TEST(DispatchTest, AWaveWithoutAnEndFaults) {
  TestDispatch test(R"(s_branch 65535)", 1, 4);
  const auto fault = test.Run();
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->what.find("a wave has not ended after "), 0u);
}

TEST(DispatchTest, AnUnknownInstructionNamesItself) {
  TestDispatch missing(R"(v_mqsad_u32_u8 v[0:3], v[4:5], v6, v[8:11])", 1, 4);
  auto fault = missing.Run();
  ASSERT_TRUE(fault.has_value());
  EXPECT_TRUE(fault->unknown);
  EXPECT_EQ(fault->what, "v_mqsad_u32_u8 is not executed");
  EXPECT_EQ(fault->pc, kCodeAddress);

  TestDispatch garbage(R"(s_endpgm)", 1, 4);
  garbage.memory.Map(kCodeAddress, 2) = {0xd7f00000, 0};
  fault = garbage.Run();
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->what, "unknown instruction d7f00000 00000000, VOP3 operation 1008");
}

TEST(DispatchTest, CodeThatIsNotMappedFaults) {
  TestDispatch test(R"(s_branch 100)", 1, 4);
  const auto fault = test.Run();
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->what, "code that is not mapped");
}

constexpr std::byte kOne{1}, kTwo{2};

TEST(LdsRaceCheckTest, FindsReadsAndWritesInEitherOrder) {
  LdsRaceCheck races;
  races.BeginGroup(64);
  EXPECT_FALSE(races.Write(0, 4, 1, &kOne, &kTwo).has_value());
  EXPECT_FALSE(races.Read<1>(0, 4).has_value());
  EXPECT_TRUE(races.Read<1>(1, 4).has_value());
  races.PassBarrier();
  EXPECT_FALSE(races.Read<1>(1, 4).has_value());
  EXPECT_TRUE(races.Write(0, 4, 1, &kOne, &kTwo).has_value());
  EXPECT_FALSE(races.Write(0, 4, 1, &kTwo, &kTwo).has_value()) << "nothing changes";
}

TEST(LdsRaceCheckTest, LetsNobodyReadWhatTwoWavesWrote) {
  LdsRaceCheck races;
  races.BeginGroup(64);
  EXPECT_FALSE(races.Write(0, 4, 1, &kOne, &kTwo).has_value());
  EXPECT_FALSE(races.Write(1, 4, 1, &kTwo, &kOne).has_value()) << "nobody has read it";
  races.PassBarrier();
  EXPECT_TRUE(races.Read<1>(2, 4).has_value());
  EXPECT_FALSE(races.Write(2, 4, 1, &kOne, &kTwo).has_value());
  EXPECT_FALSE(races.Read<1>(2, 4).has_value()) << "it was written again";
}

TEST(LdsRaceCheckTest, AllowsAtomicsOfSeveralWaves) {
  LdsRaceCheck races;
  races.BeginGroup(64);
  EXPECT_FALSE(races.Change<4>(0, 4).has_value());
  EXPECT_FALSE(races.Change<4>(1, 4).has_value());
  EXPECT_TRUE(races.Read<4>(2, 4).has_value());
  EXPECT_TRUE(races.Write(0, 4, 1, &kOne, &kTwo).has_value());
}

TEST(LdsRaceCheckTest, OutlastsItsCountOfBarriers) {
  LdsRaceCheck races;
  races.BeginGroup(64);
  EXPECT_FALSE(races.Read<4>(0, 4).has_value());
  for (int i = 0; i < 9'000'000; ++i) races.PassBarrier();
  EXPECT_FALSE(races.Write(1, 4, 1, &kOne, &kTwo).has_value());
  EXPECT_TRUE(races.Read<4>(0, 4).has_value());
}

}  // namespace
}  // namespace tandem::rdna
