// matvec.comp, and which kernel computes a matmul of few rows.
#include "services/gpu_worker/kernels/matmul.h"
#include "services/gpu_worker/kernels/matvec_case_for_test.h"

namespace tandem::gpu {
namespace {

class MatvecFormatTest : public MatvecTest, public ::testing::WithParamInterface<DType> {
 protected:
  // Columns in blocks of 32 or 256, a ragged number of units.
  uint32_t Columns(uint32_t blocks) const {
    switch (GetParam()) {
      case DType::kQ6_K:
      case DType::kQ4_K:
      case DType::kQ5_K:
        return (blocks + 7) / 8 * 256;
      default:
        return blocks * 32;
    }
  }
  ActivationFormat Input() const { return MatvecInput(GetParam()); }
};

TEST_P(MatvecFormatTest, MatchesSumsInFloat64AtOddShapes) {
  const DType format = GetParam();
  for (const uint32_t n : {1u, 31u, 33u, 100u}) {
    Check({.format = format,
           .shape = {.teams = 3, .split_k = 2},
           .n_dim = n,
           .k_dim = Columns(41),
           .x_format = Input()});
  }
  Check({.format = format, .n_dim = 40, .k_dim = Columns(1), .x_format = Input()});
  Check({.format = format,
         .shape = {.teams = 2, .tiles = 2, .rows = 4, .parts = 2},
         .rows = 3,
         .n_dim = 97,
         .k_dim = Columns(25),
         .x_format = Input(),
         .shard_rows = {32}});
}

TEST_P(MatvecFormatTest, ActivatesPairsOfRows) {
  const DType format = GetParam();
  const MatvecShape shape = {.teams = 2, .tiles = 2, .rows = 2};
  Check({.format = format,
         .shape = shape,
         .rows = 3,
         .n_dim = 192,
         .k_dim = Columns(9),
         .x_format = Input(),
         .geglu = true,
         .out_format = ActivationFormat::kInt8,
         .shard_rows = {64}});
}

INSTANTIATE_TEST_SUITE_P(Formats, MatvecFormatTest,
                         ::testing::Values(DType::kF16, DType::kBf16, DType::kQ8_0, DType::kQ4_0,
                                           DType::kQ6_K, DType::kQ4_K, DType::kQ5_K, DType::kQ5_0,
                                           DType::kIq4Nl),
                         [](const auto& test) { return std::string(Traits(test.param).name); });

TEST_F(MatvecTest, TakesEveryNumberOfRows) {
  for (const uint32_t rows : {1u, 2u, 4u, 5u, 8u, 11u, 16u}) {
    const uint32_t at_once = std::bit_ceil(rows);
    Check({.shape = {.teams = 2, .split_k = 2, .tiles = at_once >= 4 ? 2u : 1u, .rows = at_once},
           .rows = rows,
           .n_dim = 70,
           .k_dim = 800});
  }
}

TEST_F(MatvecTest, QuantisesFloatsOnItsWay) {
  for (const ActivationFormat x :
       {ActivationFormat::kF32, ActivationFormat::kF16, ActivationFormat::kBf16}) {
    for (const uint32_t rows : {1u, 3u, 17u}) {
      Check({.shape = {.teams = 3, .rows = 2},
             .rows = rows,
             .n_dim = 40,
             .k_dim = 416,
             .x_format = x});
    }
    Check({.format = DType::kQ4_K, .n_dim = 40, .k_dim = 512, .x_format = x});
    Check({.format = DType::kBf16, .rows = 2, .n_dim = 40, .k_dim = 416, .x_format = x});
  }
}

TEST_F(MatvecTest, WritesEveryFormatOfActivations) {
  for (const ActivationFormat out :
       {ActivationFormat::kF32, ActivationFormat::kF16, ActivationFormat::kInt8}) {
    for (const uint32_t tiles : {2u, 4u}) {
      Check({.shape = {.tiles = tiles, .rows = 4},
             .rows = 4,
             .n_dim = 320,
             .k_dim = 96,
             .geglu = true,
             .out_format = out});
    }
  }
}

// The same division of k gives the same bits, whatever else differs.
TEST_F(MatvecTest, ARowsBitsDoNotDependOnItsNeighbours) {
  constexpr uint32_t kColumns = 1312, kOut = 45;
  const TileMatrix matrix(device(), DType::kQ4_0, kOut, kColumns, 3);
  const TestActivations x(7, kColumns, 4);
  MatvecCase c{.shape = {.teams = 3, .split_k = 2, .tiles = 2, .rows = 8},
               .rows = 7,
               .n_dim = kOut,
               .k_dim = kColumns};
  const std::vector<float> together = Sums(c, Multiply(c, matrix, x));
  for (const auto& [rows, at_once, tiles] :
       {std::tuple{1u, 1u, 1u}, {2u, 2u, 1u}, {3u, 1u, 4u}, {7u, 4u, 2u}}) {
    c.rows = rows;
    c.shape.rows = at_once;
    c.shape.tiles = tiles;
    c.shape.parts = at_once;
    const std::vector<float> alone = Sums(c, Multiply(c, matrix, x));
    ASSERT_EQ(0, std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float))) << c;
  }
}

TEST_F(MatvecTest, FewerWorkgroupsThanTilesGiveTheSameBits) {
  for (const bool geglu : {false, true}) {
    MatvecCase c{.shape = {.teams = 2, .split_k = geglu ? 1u : 2u, .tiles = 2, .rows = 2},
                 .rows = 3,
                 .n_dim = geglu ? 448u : 421u,
                 .k_dim = 800,
                 .geglu = geglu,
                 .out_format = ActivationFormat::kInt8};
    const TileMatrix matrix(device(), DType::kQ4_0, c.n_dim, c.k_dim, 3);
    const TestActivations x(c.rows, c.k_dim, 4);
    tuning_.matvec_groups = ~0u;
    const Output alone = Multiply(c, matrix, x);
    for (const uint32_t most : {1u, 2u, 3u}) {  // of seven
      tuning_.matvec_groups = most;
      EXPECT_EQ(Multiply(c, matrix, x).bytes, alone.bytes) << c << " by " << most;
    }
  }
}

TEST_F(MatvecTest, RunsOverNoRowsWithoutATrace) {
  const TileMatrix matrix(device(), DType::kQ8_0, 64, 64, 5);
  const DeviceArray step = MakeStep(0), output(device(), 64 * sizeof(float));
  Run({MatvecLaunch(tuning(), matrix.tensor, matrix.tensor.shards[0], {.rows = 2},
                    {.count = RowCount(step),
                     .x = output.address(),
                     .destination = output.address(),
                     .out_stride = 64,
                     .max_rows = 8})});
  EXPECT_TRUE(testing::IsGuard(output.data()));
}

TEST_F(MatvecTest, ShapesDivideKAlikeForOneAndTwoRowsAndForAnyMore) {
  Tuning fast = tuning();
  fast.matrix.narrow = false;
  fast.matvec_full_teams = 1792;
  fast.matvec_rounds_few = 6;
  for (const auto& [rows, cols] : {std::pair{8192u, 5376u},
                                   {5376u, 4096u},
                                   {5376u, 21504u},
                                   {1536u, 1152u},
                                   {640u, 640u},
                                   {262144u, 640u}}) {
    const DeviceTensor weights = {DType::kQ4_0, rows, cols, {}};
    const MatvecShape one = ChooseMatvecShape(fast, weights, false, true, 1);
    EXPECT_LE(one.split_k, kMaxSplitK);
    EXPECT_LE(one.split_k * one.teams, (cols + 255) / 256) << "a team with nothing to do";
    const MatvecShape four = ChooseMatvecShape(fast, weights, false, true, 4);
    EXPECT_LE(one.split_k, four.split_k) << "more rounds, no higher split_k";
    for (const uint32_t bucket : {2u, 4u, 8u, 16u}) {
      const MatvecShape more = ChooseMatvecShape(fast, weights, false, true, bucket);
      EXPECT_EQ(more.split_k, (bucket == 2 ? one : four).split_k);
      EXPECT_EQ(more.teams, (bucket == 2 ? one : four).teams);
      EXPECT_LE(more.rows, bucket);
    }
    EXPECT_EQ(ChooseMatvecShape(fast, weights, false, false, 1).split_k, 1u);
    EXPECT_EQ(ChooseMatvecShape(fast, weights, true, true, 1).split_k, 1u);
  }
}

TEST_F(MatvecTest, MatmulsGoToTheKernelForTheirRows) {
  Tuning fast = tuning();
  fast.matrix.narrow = false;
  fast.matvec_max_rows = 16;
  const DeviceTensor q4 = {DType::kQ4_0, 8192, 5376, {}}, f32 = {DType::kF32, 8192, 5376, {}};
  const DeviceTensor odd = {DType::kQ4_0, 8192, 5376, {{.first_row = 96}}};
  const auto kernel = [&fast](const DeviceTensor& weights, uint32_t rows) {
    return ChooseMatmul(fast, weights, false, true, rows).kernel;
  };
  fast.matrix.fragments.path = MatrixPath::kNone;
  EXPECT_EQ(kernel(q4, 16), MatmulKernel::kMatvec);
  EXPECT_EQ(kernel(q4, 32), MatmulKernel::kPlain);
  fast.matrix.fragments.path = MatrixPath::kShared;
  fast.matrix.min_rows = 9;
  EXPECT_EQ(kernel(q4, 8), MatmulKernel::kMatvec);
  EXPECT_EQ(kernel(q4, 16), MatmulKernel::kMatrix);
  EXPECT_EQ(kernel(f32, 1), MatmulKernel::kPlain);
  EXPECT_EQ(kernel(f32, 64), MatmulKernel::kPlain);

  // Between GeGLU and down: what both know, float32 where they have nothing better in common.
  const auto between = [&fast](const DeviceTensor& gate_up, const DeviceTensor& down,
                               uint32_t rows) {
    gpu::Matmul reader = ChooseMatmul(fast, down, false, true, rows);
    MatchGeglu(ChooseMatmul(fast, gate_up, true, false, rows), gate_up, reader);
    return std::pair(reader.kernel, reader.input);
  };
  EXPECT_EQ(between(q4, q4, 1), std::pair(MatmulKernel::kMatvec, ActivationFormat::kInt8));
  EXPECT_EQ(between(odd, q4, 1), std::pair(MatmulKernel::kMatvec, ActivationFormat::kF32));
  EXPECT_EQ(between(f32, q4, 1), std::pair(MatmulKernel::kMatvec, ActivationFormat::kF32));
  EXPECT_EQ(between(q4, f32, 1), std::pair(MatmulKernel::kPlain, ActivationFormat::kF32));
  EXPECT_EQ(between(q4, q4, 32), std::pair(MatmulKernel::kMatrix, ActivationFormat::kF16));
  EXPECT_EQ(between(f32, q4, 32), std::pair(MatmulKernel::kPlain, ActivationFormat::kF32));
}

}  // namespace
}  // namespace tandem::gpu
