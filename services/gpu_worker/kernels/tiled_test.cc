// Attention of long sequences in tiles, beside short ones that are decoded.
#include "absl/strings/str_format.h"
#include "services/gpu_worker/kernels/attention_case_for_test.h"
#include "services/gpu_worker/kernels/attention_launches.h"
#include "shaders/tandem_gpu_emulated_shaders.h"

namespace tandem::gpu {
namespace {

struct TiledCase {
  AttentionCase shape;
  TiledTuning tiled;
  // tiled_quads.comp: shared memory for 16 positions alone, emulated matrices with pairs in another
  // order.
  bool few_positions = false;
  bool sums_in_columns = false;  // tiled_rows.comp
};
std::ostream& operator<<(std::ostream& out, const TiledCase& c) {
  return out << c.shape << "; " << c.tiled.pairs << " pairs, blocks " << c.tiled.row_blocks
             << ", ahead " << c.tiled.ahead << (c.tiled.cooperative ? ", matrix units" : ", plain")
             << (c.tiled.quads != 0 ? ", quads" : "")
             << (c.sums_in_columns ? absl::StrFormat(", rows in parts of %d", c.tiled.part_dims)
                                   : "")
             << (c.few_positions ? " of 16" : "");
}

class TiledTest : public KernelTest, public ::testing::WithParamInterface<TiledCase> {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    tuning_ = tuning();
    tuning_.decode = {.enabled = true,
                      .threads = 2 * tuning_.subgroup_size,
                      .lane_values = 16,
                      .at_once = 2,
                      .piece_bytes = 16 * c().head_dim * 4};
    tuning_.tiled = GetParam().tiled;
    const bool quads = tuning_.tiled.quads != 0;
    if (quads && !tuning_.matrix.fragments.sums_in_quads) {
      kernels().Replace(KernelId::kTiledQuads, shaders::kTiledQuadsEmulated);
      kernels().Replace(KernelId::kChains, shaders::kChainsEmulated);
      tuning_.matrix.fragments = {MatrixPath::kQuads, 12, 10, true, 12, 10};
      if (GetParam().few_positions) {
        std::swap(tuning_.matrix.fragments.pair_rows, tuning_.matrix.fragments.pair_halves);
      }
    }
    const bool rows = GetParam().sums_in_columns;
    if (rows && !tuning_.matrix.fragments.sums_in_columns) {
      kernels().Replace(KernelId::kTiledRows, shaders::kTiledRowsEmulated);
      tuning_.matrix.fragments = {.path = MatrixPath::kRows, .sums_in_columns = true};
    }
    if (!rows && GetParam().few_positions) {
      tuning_.max_shared_bytes =
          std::min(tuning_.max_shared_bytes, 4 * 16 * (2 * DivideUp(c().head_dim, 16) + 1) * 16);
    }
    table_ = MakeRotationTable(c().head_dim, 4096, 10000, 1);
    weight_ = RandomFloats(c().head_dim, 2);
    shape_ = MakeTiledShape(tuning_, c().num_heads, c().num_kv_heads, c().head_dim);
    rules_.tile_rows = shape_.tile_rows;
    if (shape_.kernel != (rows                        ? KernelId::kTiledRows
                          : quads                     ? KernelId::kTiledQuads
                          : tuning_.tiled.cooperative ? KernelId::kTiledCooperative
                                                      : KernelId::kTiled)) {
      GTEST_SKIP() << "no matrix units, or not for such heads";
    }
    if (device().info().type != VK_PHYSICAL_DEVICE_TYPE_CPU || rows) return;
    const bool many_sums = c().head_dim > 80 && (!quads || GetParam().few_positions);
    if (many_sums || tuning_.tiled.pairs > 64) {
      GTEST_SKIP() << "unrolled, it compiles for long on a software device, which never uses it";
    }
  }
  const AttentionCase& c() const { return GetParam().shape; }

  // Tiles and decode rows; [num_rows, q_dim] of `format`.  `fused`: `q` is the fused projection.
  std::vector<std::byte> Attend(const AttentionWorld::Step& made, uint32_t num_rows,
                                uint32_t bucket, const DeviceArray& q, const DeviceArray& k,
                                const DeviceArray& v,
                                ActivationFormat format = ActivationFormat::kF16,
                                bool fused = false) {
    const DecodeShape decode =
        MakeDecodeShape(tuning_, c().num_heads, c().num_kv_heads, c().head_dim);
    const DeviceArray step(device(), made.step), attention(device(), made.attention),
        table(device(), table_), weight(device(), weight_),
        out(device(), ActivationBytes(format, num_rows, c().q_dim())),
        partials(device(), bucket * decode.PartialBytes(c().head_dim)),
        counters(device(), std::vector<uint32_t>(bucket * decode.parts));
    const auto set = [&](auto& args) {
      args.push.step = step.address();
      args.push.rows = attention.address();
      args.push.q = q.address();
      args.push.k_cache = k.address();
      args.push.v_cache = v.address();
      args.push.destination = out.address();
      args.push.num_heads = c().num_heads;
      args.push.num_kv_heads = c().num_kv_heads;
      args.push.group = c().group();
      args.push.window = c().window;
      args.push.scale = c().scale();
      args.head_dim = c().head_dim;
      args.block_tokens = c().block_tokens;
      args.kv_dtype = c().kv_dtype;
      args.format = format;
      args.max_rows = bucket;
    };
    const auto take_projection = [&](auto& push) {
      push.q_weight = push.k_weight = weight.address();
      push.rotation = table.address();
      push.epsilon = kEpsilon;
    };
    const AttentionStepLayout layout(c().limits(num_rows), rules_);
    DecodeArgs rest = {};
    set(rest);
    take_projection(rest.push);
    rest.push.partials = partials.address();
    rest.push.counters = counters.address();
    rest.fused = fused;
    TiledArgs tiled = {};
    set(tiled);
    tiled.push.tiles = attention.address() + layout.tiles;
    tiled.max_pictures = layout.max_pictures;
    ChainsArgs chains = {};
    set(chains);
    take_projection(chains.push);
    chains.push.tiles = tiled.push.tiles;
    Run({DecodeLaunch(tuning_, rest),
         fused ? ChainsLaunch(tuning_, chains) : TiledLaunch(tuning_, tiled)});
    EXPECT_TRUE(out.Intact() && partials.Intact() && counters.Intact());
    return {out.data().begin(), out.data().end()};
  }

  static constexpr float kEpsilon = 1e-6f;
  Tuning tuning_;
  TiledShape shape_;
  TileRules rules_;
  std::vector<float> table_, weight_;
};

TEST_P(TiledTest, MatchesTheReferenceAndReadsOnlyWhatARowSees) {
  SCOPED_TRACE(GetParam());
  const AttentionWorld world(c());
  const auto k = RandomVectors(c(), 1), v = RandomVectors(c(), 101);
  const auto q = testing::FloatsToHalves(RandomFloats(c().num_rows() * size_t{c().q_dim()}, 9));
  const DeviceArray q_on(device(), q), k_on(device(), world.Cache(k, true)),
      v_on(device(), world.Cache(v, true));
  TileRules decoded = rules_;
  decoded.decoded_rows = c().num_rows();
  for (const TileRules& rules : {rules_, decoded}) {
    const auto out = Attend(world.WholeStep(rules), c().num_rows(), std::bit_ceil(c().num_rows()),
                            q_on, k_on, v_on);
    // Weights are rounded to float16, values are at most five.
    world.Check(Floats(out), q, k, v, 5 * testing::kEpsilonF16);
  }
}

TEST_P(TiledTest, ARowsBitsDoNotDependOnTheTileItIsIn) {
  SCOPED_TRACE(GetParam());
  const AttentionWorld world(c());
  const size_t width = c().q_dim();
  const auto q = testing::FloatsToHalves(RandomFloats(c().num_rows() * width, 9));
  const DeviceArray k(device(), world.Cache(RandomVectors(c(), 1), true)),
      v(device(), world.Cache(RandomVectors(c(), 101), true));
  const auto together = Attend(world.WholeStep(rules_), c().num_rows(),
                               std::bit_ceil(c().num_rows()), DeviceArray(device(), q), k, v);
  uint32_t first_row = 0;
  for (size_t s = 0; s < c().sequences.size(); ++s) {
    const uint32_t rows = c().sequences[s].rows;
    for (const uint32_t first : {0u, 5u}) {
      if (rows - first < kLongRows || rows < first) continue;
      std::vector<std::pair<uint32_t, uint32_t>> chosen(c().sequences.size());
      chosen[s] = {first, rows - first};
      const DeviceArray part(device(), std::vector(q.begin() + (first_row + first) * width,
                                                   q.begin() + (first_row + rows) * width));
      const auto alone = Attend(world.MakeStep(chosen, rules_), rows - first,
                                std::bit_ceil(rows - first), part, k, v);
      EXPECT_EQ(0, std::memcmp(alone.data(), together.data() + (first_row + first) * width * 2,
                               alone.size()))
          << "sequence " << s << " from row " << first;
    }
    first_row += rows;
  }
}

// chains.comp and decode.comp, side by side, do what the projection's kernel and these do.
TEST_P(TiledTest, FusedTakesNewVectorsFromTheProjectionAndStoresThem) {
  SCOPED_TRACE(GetParam());
  const AttentionWorld world(c());
  const AttentionWorld::Step made = world.WholeStep(rules_);
  if (made.sequences != Sequences::kChains ||
      !HasChainsKernel(tuning_, c().num_heads, c().num_kv_heads, c().head_dim)) {
    GTEST_SKIP() << "never fused";
  }
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
  constexpr auto kFormat = ActivationFormat::kF16;
  const auto attend = [&](ActivationFormat format) {
    return Attend(made, rows, bucket, qkv, fused_k, fused_v, format, true);
  };
  const auto expected = Floats(Attend(made, rows, bucket, q, k, v));
  const auto fused = attend(kFormat);
  // One unit in the last place of float16 in q and k moves a score of order ten by its 2^-11.
  EXPECT_TRUE(testing::IsNear(Floats(fused), expected, 0.02, 0.02));
  EXPECT_TRUE(world.AreClose(fused_k.data(), k.data()));
  EXPECT_TRUE(world.AreClose(fused_v.data(), v.data()));
  EXPECT_NE(0, std::memcmp(k.data().data(), old_k.data(), old_k.size())) << "stored nothing";

  // Without its last guesses the other rows' bits are the same.
  std::vector<std::pair<uint32_t, uint32_t>> fewer;
  for (const SequenceRows& s : c().sequences) fewer.emplace_back(0, s.rows);
  ASSERT_GT(fewer.back().second, 4u);
  const uint32_t dropped = std::min(fewer.back().second - 4, rows - kFewestChainRows);
  fewer.back().second -= dropped;
  const auto part = Attend(world.MakeStep(fewer, rules_), rows - dropped, bucket, qkv, fused_k,
                           fused_v, kFormat, true);
  EXPECT_EQ(0, std::memcmp(fused.data(), part.data(), part.size()));

  if (c().window == 0) return;  // other formats compile for long on a software device
  const auto exact = attend(ActivationFormat::kF32);
  CheckQuantised(exact, attend(ActivationFormat::kInt8), rows, c().q_dim());
  CheckFragments(exact, attend(ActivationFormat::kFragments), rows, c().q_dim());
}

TEST_P(TiledTest, WritesBlocksOf32AndFragments) {
  SCOPED_TRACE(GetParam());
  if (c().head_dim % 32 != 0) GTEST_SKIP() << "no whole blocks a head";
  if (device().info().type == VK_PHYSICAL_DEVICE_TYPE_CPU && c().head_dim > 80) {
    GTEST_SKIP() << "it compiles for long on a software device";
  }
  const AttentionWorld world(c());
  const uint32_t rows = c().num_rows(), bucket = std::bit_ceil(rows), width = c().q_dim();
  const DeviceArray q(device(), testing::FloatsToHalves(RandomFloats(rows * size_t{width}, 9))),
      k(device(), world.Cache(RandomVectors(c(), 1), true)),
      v(device(), world.Cache(RandomVectors(c(), 101), true));
  const AttentionWorld::Step step = world.WholeStep(rules_);
  const auto exact = Attend(step, rows, bucket, q, k, v, ActivationFormat::kF32);
  const auto blocks = Attend(step, rows, bucket, q, k, v, ActivationFormat::kInt8);
  CheckQuantised(exact, blocks, rows, width);
  CheckFragments(exact, Attend(step, rows, bucket, q, k, v, ActivationFormat::kFragments), rows,
                 width);
}

constexpr TiledTuning kPlain = {.enabled = true, .cooperative = false, .quads = 0};
constexpr TiledTuning kNarrow = {
    .enabled = true, .cooperative = false, .pairs = 16, .quads = 0, .ahead = 0};
constexpr TiledTuning kUnits = {.enabled = true, .quads = 0, .row_blocks = 2};
constexpr TiledTuning kUnitsSingle = {.enabled = true, .quads = 0, .ahead = 0};
constexpr TiledTuning kQuads = {.enabled = true};
constexpr TiledTuning kQuadsNarrow = {.enabled = true, .pairs = 32};
constexpr TiledTuning kQuadsWide = {.enabled = true, .pairs = 128};
constexpr TiledTuning kRows = {.enabled = true, .quads = 0};
constexpr TiledTuning kRowsInParts = {.enabled = true, .quads = 0, .ahead = 0, .part_dims = 64};
// Emulated matrices need shared memory too.
constexpr TiledTuning kRowsNarrow = {.enabled = true, .pairs = 32, .quads = 0};

std::vector<TiledCase> Cases() {
  const std::vector<AttentionCase> shapes = {
      {4, 2, 64, 16, 0, {{0, 70}, {5, 1}, {37, 9}}},
      {4, 2, 128, 16, 24, {{100, 33}, {3, 12}}},
      {4, 1, 256, 16, 31, {{30, 19}, {900, 2}}},
      {8, 1, 128, 7, 0, {{61, 40}}},
      {3, 1, 72, 16, 0, {{150, 17}}},
      {1, 1, 80, 5, 9, {{1, 31}, {0, 32}}},
      {2, 2, 24, 1, 1, {{6, 9}}},
      {2, 1, 64, 16, 1024, {{3000, 64}}},
      // Chains of guesses.
      {4, 2, 64, 16, 24, {{40, 4}, {7, 5}, {2, 3}, {90, 8}}},
      {8, 2, 64, 7, 0, {{0, 8}, {31, 4}, {300, 1}, {28, 6}}},
      {2, 2, 64, 5, 0, {{500, 1}, {0, 4}, {127, 8}, {128, 7}}},
      {4, 1, 64, 16, 0, {{62, 4}, {7, 7}, {2, 1}, {90, 8}}, DType::kQ8_0},
      {2, 1, 128, 16, 40, {{100, 4}, {45, 5}, {2, 3}, {90, 8}}},
      {4, 2, 64, 16, 24, {{0, 70}, {5, 1}, {37, 9}}, DType::kQ8_0},
      {4, 2, 128, 7, 0, {{100, 33}, {3, 12}}, DType::kQ8_0},
      // Pictures: two of a sequence, one whose first rows came before, one of a short sequence,
      // wider than the window or not, side by side, longer than a tile.
      {4,
       2,
       64,
       16,
       11,
       {{0, 70, {3, 40}}, {5, 1}, {37, 9, {30}}, {20, 16, {20}}},
       DType::kF16,
       16},
      {3, 1, 72, 7, 0, {{150, 17, {152, 156, 160}}, {8, 5, {9}}, {0, 12}}, DType::kF16, 4},
      {2, 1, 128, 16, 90, {{60, 90, {66}}, {300, 81, {300}}}, DType::kQ8_0, 80},
  };
  std::vector<TiledCase> cases;
  for (const AttentionCase& shape : shapes) {
    for (const TiledTuning& tiled : {kPlain, kNarrow, kUnits, kUnitsSingle, kQuads, kQuadsWide}) {
      cases.push_back({shape, tiled});
    }
    cases.push_back({shape, kQuadsNarrow, true});
    const bool wide = shape.head_dim > 128;  // in parts anyway
    cases.push_back({shape, wide ? kRowsNarrow : kRows, false, true});
    if (shape.head_dim > 64 && !wide) cases.push_back({shape, kRowsInParts, false, true});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Cases, TiledTest, ::testing::ValuesIn(Cases()));

}  // namespace
}  // namespace tandem::gpu
