// Attention of rows that have a sequence (nearly) to themselves: pieces, fused and not.
#include "services/gpu_worker/kernels/attention_case_for_test.h"
#include "services/gpu_worker/kernels/attention_launches.h"
#include "services/gpu_worker/kernels/phases.h"

namespace tandem::gpu {
namespace {

constexpr float kEpsilon = 1e-6f;

// `threads` in subgroups; small pieces make short contexts cross many of them.
struct Variant {
  uint32_t subgroups, lane_values, at_once, piece_positions, num_groups;
};
struct DecodeCase {
  AttentionCase shape;
  Variant variant;
};
std::ostream& operator<<(std::ostream& out, const DecodeCase& c) {
  const Variant& v = c.variant;
  return out << c.shape << "; subgroups " << v.subgroups << ", values " << v.lane_values << ", "
             << v.at_once << " at once, pieces of " << v.piece_positions << ", groups "
             << v.num_groups;
}

class DecodeTest : public KernelTest, public ::testing::WithParamInterface<DecodeCase> {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const Variant& v = GetParam().variant;
    tuning_ = tuning();
    tuning_.decode = {.enabled = true,
                      .threads = v.subgroups * tuning_.subgroup_size,
                      .lane_values = v.lane_values,
                      .at_once = v.at_once,
                      .piece_bytes = v.piece_positions * c().head_dim * 4,
                      .num_groups = v.num_groups};
    table_ = MakeRotationTable(c().head_dim, 150000, 1e4, 1);
    weight_ = RandomFloats(c().head_dim, 31);
  }
  const AttentionCase& c() const { return GetParam().shape; }

  // Runs the kernel on a step; [rows, q_dim] of `format` as they lie in memory.
  std::vector<std::byte> Decode(const AttentionWorld::Step& made, uint32_t num_rows,
                                uint32_t bucket, bool fused, const DeviceArray& q,
                                const DeviceArray& k, const DeviceArray& v,
                                ActivationFormat format = ActivationFormat::kF16) {
    const DecodeShape shape =
        MakeDecodeShape(tuning_, c().num_heads, c().num_kv_heads, c().head_dim);
    std::vector<std::byte> rows = made.attention;
    rows.resize(std::max(rows.size(), bucket * sizeof(AttentionRow)));
    const DeviceArray step(device(), made.step), attention(device(), rows),
        out(device(), ActivationBytes(format, num_rows, c().q_dim())),
        partials(device(), bucket * shape.PartialBytes(c().head_dim)),
        counters(device(), std::vector<uint32_t>(bucket * shape.parts)), table(device(), table_),
        weight(device(), weight_);
    const DecodeArgs args = {.push = {.step = step.address(),
                                      .rows = attention.address(),
                                      .q = q.address(),
                                      .k_cache = k.address(),
                                      .v_cache = v.address(),
                                      .destination = out.address(),
                                      .partials = partials.address(),
                                      .counters = counters.address(),
                                      .q_weight = weight.address(),
                                      .k_weight = weight.address(),
                                      .rotation = table.address(),
                                      .num_heads = c().num_heads,
                                      .num_kv_heads = c().num_kv_heads,
                                      .group = c().group(),
                                      .window = c().window,
                                      .scale = c().scale(),
                                      .epsilon = kEpsilon},
                             .head_dim = c().head_dim,
                             .block_tokens = c().block_tokens,
                             .kv_dtype = c().kv_dtype,
                             .fused = fused,
                             .format = format,
                             .max_rows = bucket};
    Launch launch = DecodeLaunch(tuning_, args);
    if (phase_ != 0) SetPhase(launch, phase_, false);
    num_groups_ = launch.groups_x * launch.groups_y;
    Run({launch});
    EXPECT_TRUE(out.Intact() && partials.Intact() && counters.Intact() && k.Intact());
    EXPECT_TRUE(
        std::ranges::all_of(counters.as<uint32_t>(), [](uint32_t count) { return count == 0; }));
    return {out.data().begin(), out.data().end()};
  }

  Tuning tuning_;
  std::vector<float> table_, weight_;
  uint64_t phase_ = 0;       // address of its counter; 0: none
  uint32_t num_groups_ = 0;  // of the last launch
};

TEST_P(DecodeTest, MatchesTheReferenceAndReadsOnlyWhatARowSees) {
  SCOPED_TRACE(GetParam());
  const AttentionWorld world(c());
  const auto k = RandomVectors(c(), 1), v = RandomVectors(c(), 101);
  const auto q = testing::FloatsToHalves(RandomFloats(c().num_rows() * size_t{c().q_dim()}, 9));
  const DeviceArray q_on(device(), q), k_on(device(), world.Cache(k, true)),
      v_on(device(), world.Cache(v, true));
  const auto out = Decode(world.WholeStep({}), c().num_rows(), std::bit_ceil(c().num_rows()), false,
                          q_on, k_on, v_on);
  world.Check(Floats(out), q, k, v, 0);
}

// The fused kernel does what projection's kernel, cache append and this one do.
TEST_P(DecodeTest, FusedTakesNewVectorsFromTheProjectionAndStoresThem) {
  SCOPED_TRACE(GetParam());
  const AttentionWorld world(c());
  const AttentionWorld::Step made = world.WholeStep({});
  if (made.sequences == Sequences::kLong) GTEST_SKIP() << "never fused";
  const uint32_t rows = c().num_rows(), bucket = std::bit_ceil(rows);
  const DeviceArray qkv(device(), RandomFloats(rows * size_t{c().qkv_dim()}, 5)),
      step(device(), made.step), table(device(), table_), weight(device(), weight_),
      q(device(), size_t{rows} * c().q_dim() * 2);
  const auto old_k = world.Cache(RandomVectors(c(), 1), false),
             old_v = world.Cache(RandomVectors(c(), 101), false);
  const DeviceArray k(device(), old_k), v(device(), old_v), fused_k(device(), old_k),
      fused_v(device(), old_v);
  QkNormRopePush rope = c().rope_push(kEpsilon);
  rope.step = step.address();
  rope.qkv = qkv.address();
  rope.q = q.address();
  rope.k = k.address();
  rope.v = v.address();
  rope.q_weight = rope.k_weight = weight.address();
  rope.rotation = table.address();
  Run({QkNormRopeAppendLaunch(tuning(), rope, c().kv_dtype, bucket)});
  const auto expected = Floats(Decode(made, rows, bucket, false, q, k, v));
  const auto actual = Floats(Decode(made, rows, bucket, true, qkv, fused_k, fused_v));
  // One unit in the last place of float16 in q and k moves a score of order ten by its 2^-11.
  EXPECT_TRUE(testing::IsNear(actual, expected, 0.02, 0.02));
  EXPECT_TRUE(world.AreClose(fused_k.data(), k.data()));
  EXPECT_TRUE(world.AreClose(fused_v.data(), v.data()));
  EXPECT_NE(0, std::memcmp(k.data().data(), old_k.data(), old_k.size())) << "stored nothing";
}

// Those that find nothing to do and those whose row is not there are counted too.
using DecodePhaseTest = DecodeTest;
TEST_P(DecodePhaseTest, CountsAllItsWorkgroups) {
  SCOPED_TRACE(GetParam());
  const AttentionWorld world(c());
  const DeviceArray q(device(), size_t{c().num_rows()} * c().q_dim() * 2),
      k(device(), world.cache_bytes()), v(device(), world.cache_bytes()),
      counters(device(), 2 * sizeof(DependencyCounter));
  phase_ = (counters.address() + alignof(DependencyCounter) - 1) / alignof(DependencyCounter) *
           alignof(DependencyCounter);
  const auto at = counters.data().subspan(phase_ - counters.address(), sizeof(DependencyCounter));
  DependencyCounter counter{.left = 0, .groups = 1 << 30};
  std::memcpy(at.data(), &counter, sizeof(counter));
  Decode(world.WholeStep({}), c().num_rows(), 2 * std::bit_ceil(c().num_rows()), false, q, k, v);
  std::memcpy(&counter, at.data(), sizeof(counter));
  EXPECT_EQ(counter.left, -static_cast<int32_t>(num_groups_));
}

TEST_P(DecodeTest, ARowsBitsDoNotDependOnItsNeighbours) {
  SCOPED_TRACE(GetParam());
  const AttentionWorld world(c());
  const size_t width = c().q_dim(), qkv_width = c().qkv_dim();
  const DeviceArray k(device(), world.Cache(RandomVectors(c(), 1), true)),
      v(device(), world.Cache(RandomVectors(c(), 101), true));
  for (const bool fused : {false, true}) {
    const auto queries = RandomFloats(c().num_rows() * qkv_width, 7);
    const auto halves = testing::FloatsToHalves(
        std::vector(queries.begin(), queries.begin() + c().num_rows() * width));
    const auto decode = [&](const AttentionWorld::Step& made, uint32_t first, uint32_t rows,
                            uint32_t bucket) {
      if (!fused) {
        const DeviceArray q(device(), std::vector(halves.begin() + first * width,
                                                  halves.begin() + (first + rows) * width));
        return Decode(made, rows, bucket, false, q, k, v);
      }
      const DeviceArray qkv(device(), std::vector(queries.begin() + first * qkv_width,
                                                  queries.begin() + (first + rows) * qkv_width));
      return Decode(made, rows, bucket, true, qkv, k, v);
    };
    const AttentionWorld::Step whole = world.WholeStep({});
    if (fused && whole.sequences == Sequences::kLong) continue;
    const auto together = decode(whole, 0, c().num_rows(), std::bit_ceil(c().num_rows()));
    uint32_t row = 0;
    for (size_t s = 0; s < c().sequences.size(); ++s) {
      const uint32_t rows = c().sequences[s].rows;
      std::vector<std::pair<uint32_t, uint32_t>> chosen(c().sequences.size());
      chosen[s] = {0, rows};
      const auto alone = decode(world.MakeStep(chosen, {}), row, rows, rows == 1 ? 1 : 32);
      EXPECT_EQ(0, std::memcmp(alone.data(), together.data() + row * width * 2, alone.size()))
          << "sequence " << s << (fused ? ", fused" : "");
      row += rows;
    }
  }
}

TEST_P(DecodeTest, WritesBlocksOf32AndFragments) {
  SCOPED_TRACE(GetParam());
  const DecodeShape shape = MakeDecodeShape(tuning_, c().num_heads, c().num_kv_heads, c().head_dim);
  if (shape.queries * c().head_dim % 32 != 0) GTEST_SKIP() << "no whole blocks a workgroup";
  const AttentionWorld world(c());
  const uint32_t rows = c().num_rows(), bucket = std::bit_ceil(rows), width = c().q_dim();
  const DeviceArray q(device(), testing::FloatsToHalves(RandomFloats(rows * size_t{width}, 9))),
      k(device(), world.Cache(RandomVectors(c(), 1), true)),
      v(device(), world.Cache(RandomVectors(c(), 101), true));
  const AttentionWorld::Step step = world.WholeStep({});
  const auto exact = Decode(step, rows, bucket, false, q, k, v, ActivationFormat::kF32);
  const auto blocks = Decode(step, rows, bucket, false, q, k, v, ActivationFormat::kInt8);
  CheckQuantised(exact, blocks, rows, width);
  CheckFragments(exact, Decode(step, rows, bucket, false, q, k, v, ActivationFormat::kFragments),
                 rows, width);
}

// Subgroups, values, at once, piece, groups.
constexpr Variant kSmall = {1, 16, 2, 8, 16}, kWide = {4, 32, 4, 64, 512}, kOdd = {3, 8, 1, 16, 40};
constexpr DType kQ8 = DType::kQ8_0;
INSTANTIATE_TEST_SUITE_P(
    Cases, DecodeTest,
    ::testing::Values(DecodeCase{{1, 1, 8, 4, 0, {{0, 1}}}, kSmall},
                      DecodeCase{{4, 2, 64, 16, 0, {{0, 1}, {37, 1}, {5, 8}, {300, 2}}}, kSmall},
                      DecodeCase{{4, 2, 128, 16, 0, {{700, 1}, {63, 1}, {64, 1}}}, kWide},
                      DecodeCase{{4, 2, 64, 16, 24, {{100, 9}, {23, 1}, {24, 1}, {25, 3}}}, kSmall},
                      DecodeCase{{4, 1, 256, 16, 31, {{30, 5}, {900, 1}}}, kWide},
                      DecodeCase{{6, 3, 128, 7, 33, {{61, 3}}}, kOdd},
                      DecodeCase{{3, 1, 72, 16, 0, {{150, 2}, {1, 1}}}, kSmall},
                      DecodeCase{{8, 1, 200, 32, 5, {{7, 3}}}, kWide},
                      DecodeCase{{2, 2, 24, 1, 1, {{6, 4}}}, kOdd},
                      DecodeCase{{2, 1, 80, 5, 0, {{129, 1}, {128, 1}, {127, 1}}}, kOdd},
                      DecodeCase{{2, 1, 64, 16, 0, {{20000, 1}, {10, 1}}}, kWide},
                      DecodeCase{{2, 1, 64, 16, 1024, {{32767, 1}}}, kWide},
                      DecodeCase{{1, 1, 64, 16, 0, {{40000, 2}}}, kWide},
                      DecodeCase{{4, 2, 64, 16, 0, {{0, 1}, {37, 1}, {5, 8}}, kQ8}, kSmall},
                      DecodeCase{{4, 2, 128, 16, 0, {{700, 1}, {63, 1}, {64, 3}}, kQ8}, kWide},
                      DecodeCase{{4, 1, 256, 16, 31, {{30, 5}, {900, 1}}, kQ8}, kWide},
                      DecodeCase{{6, 3, 64, 7, 33, {{61, 3}, {7, 1}}, kQ8}, kOdd}));
INSTANTIATE_TEST_SUITE_P(
    Cases, DecodePhaseTest,
    ::testing::Values(DecodeCase{{1, 1, 8, 4, 0, {{0, 1}}}, kSmall},
                      DecodeCase{{6, 3, 128, 7, 33, {{61, 3}}}, kOdd},
                      DecodeCase{{2, 1, 80, 5, 0, {{129, 1}, {128, 1}, {27, 1}}}, kOdd}));

}  // namespace
}  // namespace tandem::gpu
