// Cache append and attention against the reference, over scattered blocks.
#include "services/gpu_worker/kernels/attention_case_for_test.h"
#include "services/gpu_worker/kernels/attention_launches.h"

namespace tandem::gpu {
namespace {

// Of one sequence.
class AttentionTest : public KernelTest, public ::testing::WithParamInterface<AttentionCase> {
 protected:
  const AttentionCase& c() const { return GetParam(); }

  // float16 [rows, q_dim] as they lie in memory.
  std::vector<std::byte> Attend(const Tuning& tuning, const AttentionWorld::Step& made,
                                uint32_t bucket, const std::vector<uint16_t>& q,
                                const DeviceArray& k, const DeviceArray& v) {
    const DeviceArray step(device(), made.step), q_on(device(), q), out(device(), q.size() * 2);
    Run({AttentionLaunch(tuning,
                         {.step = step.address(),
                          .q = q_on.address(),
                          .k_cache = k.address(),
                          .v_cache = v.address(),
                          .destination = out.address(),
                          .num_heads = c().num_heads,
                          .num_kv_heads = c().num_kv_heads,
                          .block_tokens = c().block_tokens,
                          .group = c().group(),
                          .window = c().window,
                          .scale = c().scale()},
                         c().head_dim, c().kv_dtype, k.data().size(), bucket, c().picture_rows)});
    EXPECT_TRUE(out.Intact());
    return {out.data().begin(), out.data().end()};
  }
};

TEST_P(AttentionTest, MatchesTheReferenceAndReadsOnlyWhatARowSees) {
  SCOPED_TRACE(c());
  const AttentionWorld world(c());
  const auto q = testing::FloatsToHalves(RandomFloats(c().num_rows() * size_t{c().q_dim()}, 1));
  const auto k = RandomVectors(c(), 2), v = RandomVectors(c(), 3);
  const DeviceArray k_on(device(), world.Cache(k, true)), v_on(device(), world.Cache(v, true));
  const AttentionWorld::Step step = world.WholeStep({});
  const uint32_t bucket = std::bit_ceil(c().num_rows());
  const auto out = Attend(tuning(), step, bucket, q, k_on, v_on);
  EXPECT_EQ(Attend(ByAddress(), step, bucket, q, k_on, v_on), out)
      << "bits do not depend on how they are read";
  std::vector<uint16_t> halves(out.size() / 2);
  std::memcpy(halves.data(), out.data(), out.size());
  world.Check(testing::HalvesToFloats(halves), q, k, v, 0);
}

TEST_P(AttentionTest, ARowsBitsDoNotDependOnItsNeighbours) {
  SCOPED_TRACE(c());
  if (c().picture_rows > 0) GTEST_SKIP() << "a picture's rows come together";
  const AttentionWorld world(c());
  const size_t width = c().q_dim();
  const auto q = testing::FloatsToHalves(RandomFloats(c().num_rows() * width, 4));
  const DeviceArray k(device(), world.Cache(RandomVectors(c(), 5), true)),
      v(device(), world.Cache(RandomVectors(c(), 6), true));
  const auto together =
      Attend(tuning(), world.WholeStep({}), std::bit_ceil(c().num_rows()), q, k, v);
  for (uint32_t row = 0; row < c().num_rows(); ++row) {
    const std::vector<uint16_t> own(q.begin() + row * width, q.begin() + (row + 1) * width);
    const auto alone =
        Attend(tuning(), world.MakeStep({{row, 1}}, {}), row % 2 == 0 ? 1 : 8, own, k, v);
    ASSERT_EQ(0, std::memcmp(alone.data(), together.data() + row * width * 2, width * 2)) << row;
  }
}

TEST_P(AttentionTest, AppendWritesTheRowsVectorsAndNothingElse) {
  SCOPED_TRACE(c());
  const AttentionWorld world(c());
  const SequenceRows& rows = c().sequences[0];
  const size_t kv = c().kv_dim();
  const auto k = RandomVectors(c(), 7)[0], v = RandomVectors(c(), 8)[0];
  const auto own = [&](const std::vector<uint16_t>& all) {
    return std::vector<uint16_t>(all.begin() + rows.position * kv, all.end());
  };
  const DeviceArray step(device(), world.WholeStep({}).step), k_on(device(), own(k)),
      v_on(device(), own(v)), k_cache(device(), world.cache_bytes()),
      v_cache(device(), world.cache_bytes());
  Run({KvAppendLaunch(tuning(),
                      {.step = step.address(),
                       .k = k_on.address(),
                       .v = v_on.address(),
                       .k_cache = k_cache.address(),
                       .v_cache = v_cache.address(),
                       .num_kv_heads = c().num_kv_heads,
                       .head_dim = c().head_dim,
                       .block_tokens = c().block_tokens,
                       .group = c().group()},
                      c().kv_dtype, std::bit_ceil(c().num_rows()))});
  EXPECT_TRUE(k_cache.Intact() && v_cache.Intact());
  std::vector<std::byte> expected_k(world.cache_bytes(), testing::kGuardByte);
  std::vector<std::byte> expected_v = expected_k;
  for (uint32_t row = 0; row < rows.rows; ++row) {
    world.PutVectors(0, rows.position + row, k, expected_k);
    world.PutVectors(0, rows.position + row, v, expected_v);
  }
  EXPECT_TRUE(std::ranges::equal(k_cache.data(), expected_k));
  EXPECT_TRUE(std::ranges::equal(v_cache.data(), expected_v));
}

constexpr DType kQ8 = DType::kQ8_0;
INSTANTIATE_TEST_SUITE_P(
    Cases, AttentionTest,
    ::testing::Values(
        AttentionCase{1, 1, 8, 4, 0, {{0, 1}}}, AttentionCase{4, 2, 64, 16, 0, {{0, 17}}},
        AttentionCase{4, 2, 64, 16, 24, {{100, 9}}}, AttentionCase{4, 1, 256, 16, 31, {{30, 5}}},
        AttentionCase{6, 3, 128, 7, 33, {{61, 3}}}, AttentionCase{3, 1, 72, 16, 0, {{150, 2}}},
        AttentionCase{8, 1, 200, 32, 5, {{7, 3}}}, AttentionCase{2, 2, 24, 1, 1, {{6, 4}}},
        AttentionCase{2, 1, 64, 16, 0, {{131069, 2}}}, AttentionCase{2, 1, 64, 16, 0, {{20000, 1}}},
        AttentionCase{2, 1, 64, 16, 0, {{60000, 1}}}, AttentionCase{1, 1, 64, 16, 0, {{100000, 1}}},
        AttentionCase{1, 1, 64, 16, 0, {{131000, 1}}},
        AttentionCase{4, 2, 64, 16, 9, {{100, 20, {98, 110}}}, DType::kF16, 8},
        AttentionCase{2, 1, 128, 7, 0, {{0, 30, {0, 12, 21}}}, kQ8, 9},
        AttentionCase{4, 2, 64, 16, 0, {{0, 17}}, kQ8},
        AttentionCase{4, 1, 256, 16, 31, {{30, 5}}, kQ8},
        AttentionCase{6, 3, 128, 7, 33, {{61, 3}}, kQ8},
        AttentionCase{2, 1, 64, 7, 0, {{2000, 2}}, kQ8}));

}  // namespace
}  // namespace tandem::gpu
