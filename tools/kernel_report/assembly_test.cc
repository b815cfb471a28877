// Figures from the compiler's disassembly.
#include "tools/kernel_report/assembly.h"

#include <gtest/gtest.h>

namespace tandem::report {
namespace {

// Mesa 25.0.7's form: a prologue, a loop of two blocks, an end.
constexpr std::string_view kMatrixLoop = R"(BB0:
	v_mov_b32_e32 v1, 0                                         ; 7e020280
	s_lshl_b64 s[12:13], s[12:13], 4                            ; 848c840c
	s_delay_alu instid0(SALU_CYCLE_1) | instskip(NEXT)          ; bf870499
	s_load_b64 s[14:15], s[2:3], 0x0                            ; f4040381
BB2:
	s_cbranch_scc1 BB12                                         ; bfa205b0
	s_clause 0x1                                                ; bf850001
	global_load_b128 v[4:7], v1, s[24:25]                       ; dc5e0000
	global_load_b64 v[2:3], v1, s[14:15]                        ; dc560000
	s_waitcnt vmcnt(0)                                          ; bf8903f7
	ds_store_b128 v9, v[4:7]                                    ; dbfc0000
	s_barrier                                                   ; bfbd0000
BB5:
	ds_load_b128 v[10:13], v9 offset:16                         ; dbfc0010
	v_wmma_f32_16x16x16_f16 v[232:239], v[196:203], v[52:59], v[208:215] ; cc4040e8
	v_wmma_f32_16x16x16_f16 v[208:215], v[200:207], v[52:59], v[208:215] ; cc4040d0
	v_dual_mul_f32 v13, 0x4f7ffffe, v13 :: v_dual_add_nc_u32 v16, 32, v11 ; c8e01aff
	v_exp_f32_e32 v3, v3                                        ; 7e064b03
	s_branch BB2                                                ; bfa0fa4e
BB12:
	global_store_b32 v1, v2, s[14:15]                           ; dc6a0000
	s_endpgm                                                    ; bfb00000
)";

TEST(AssemblyTest, CountsInstructionsByClass) {
  const InstructionMix all = ReadAssembly(kMatrixLoop).all;
  EXPECT_EQ(all.matrix, 2u);
  EXPECT_EQ(all.vector, 5u);  // two operations in one count once
  EXPECT_EQ(all.transcendental, 1u);
  EXPECT_EQ(all.scalar_loads, 1u);
  EXPECT_EQ(all.scalar, 1u);
  EXPECT_EQ(all.vector_loads, 2u);
  EXPECT_EQ(all.vector_stores, 1u);
  EXPECT_EQ(all.shared, 2u);
  EXPECT_EQ(all.waits, 1u);
  EXPECT_EQ(all.barriers, 1u);
  EXPECT_EQ(all.branches, 2u);
  EXPECT_EQ(all.scratch, 0u);
  EXPECT_EQ(all.total, 16u);  // neither hints nor the end
  EXPECT_EQ(all.macs, 2 * 16 * 16 * 16);
  EXPECT_EQ(all.shared_bytes, 2 * 16 * 32);
  EXPECT_EQ(all.vector_bytes, (16 + 8 + 4) * 32);
}

TEST(AssemblyTest, FindsTheLoopOfTheMultiplyAdds) {
  const InstructionMix loop = ReadAssembly(kMatrixLoop).loop;
  EXPECT_EQ(loop.matrix, 2u);
  EXPECT_EQ(loop.vector_loads, 2u);
  EXPECT_EQ(loop.vector_stores, 0u) << "after the loop";
  EXPECT_EQ(loop.scalar_loads, 0u) << "before it";
  EXPECT_EQ(loop.branches, 2u);
}

TEST(AssemblyTest, TakesTheInnermostLoopThatHasMostOfThem) {
  const AssemblyReport report = ReadAssembly(
      "BB0:\n\ts_mov_b32 s0, 0\nBB1:\n\tv_dot4_i32_iu8 v0, v1, v2, v0\n"
      "BB2:\n\tv_dot4_i32_iu8 v0, v1, v2, v0\n\tv_dot4_i32_iu8 v0, v1, v2, v0\n"
      "\tv_dot4_i32_iu8 v0, v1, v2, v0\n\ts_cbranch_scc0 BB2\n"
      "BB3:\n\ts_nop 0\n\ts_cbranch_scc0 BB3\n\ts_cbranch_scc0 BB1\n\ts_endpgm\n");
  EXPECT_EQ(report.all.dot, 4u);
  EXPECT_EQ(report.loop.dot, 3u);
  EXPECT_EQ(report.loop.macs, 3 * 4 * 32);
}

TEST(AssemblyTest, SeesScratchMemory) {
  const InstructionMix all = ReadAssembly(
                                 "BB0:\n\tscratch_store_b32 off, v0, off\n"
                                 "\tscratch_load_b128 v[0:3], off, off\n\ts_endpgm\n")
                                 .all;
  EXPECT_EQ(all.scratch, 2u);
  EXPECT_EQ(all.vector_loads, 0u);
}

TEST(AssemblyTest, StraightCodeAndDamagedTextHaveNoLoop) {
  EXPECT_EQ(ReadAssembly("BB0:\n\tv_fma_f32 v0, v1, v2, v0\n\ts_endpgm\n").loop.total, 0u);
  EXPECT_EQ(ReadAssembly("").all.total, 0u);
  EXPECT_EQ(ReadAssembly("BB").all.total, 0u);
  EXPECT_EQ(ReadAssembly("BBx:\n\ts_branch BB99999999999999999999\n").loop.total, 0u);
}

TEST(ClocksTest, TheSlowestUnitBindsTheLoop) {
  const InstructionCosts costs;
  InstructionMix mix;
  mix.matrix = mix.vector = 4;
  EXPECT_EQ(ClocksOf(mix, costs).most(), 4 * costs.matrix);
  EXPECT_EQ(ClocksOf(mix, costs).bound(), "matrix unit");
  mix.shared_bytes = 1000 * costs.lds_bytes;
  EXPECT_EQ(ClocksOf(mix, costs).most(), 1000);
  EXPECT_EQ(ClocksOf(mix, costs).bound(), "shared memory");
  mix.scalar = 2000;
  EXPECT_EQ(ClocksOf(mix, costs).bound(), "scalar unit");
}

}  // namespace
}  // namespace tandem::report
