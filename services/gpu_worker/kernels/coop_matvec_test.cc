// coop_matvec.comp, on emulated matrices where the device has no int8 matrix units.
#include "services/gpu_worker/kernels/matmul.h"
#include "services/gpu_worker/kernels/matvec_case_for_test.h"
#include "shaders/tandem_gpu_emulated_shaders.h"

namespace tandem::gpu {
namespace {

class CoopMatvecTest : public MatvecTest, public ::testing::WithParamInterface<DType> {
 protected:
  void SetUp() override {
    MatvecTest::SetUp();
    if (IsSkipped() || tuning_.matrix.int8_sums) return;
    kernels().Replace(KernelId::kCoopMatvec, shaders::kCoopMatvecEmulated);
    tuning_.matrix.int8_sums = true;
  }
};

TEST_P(CoopMatvecTest, MatchesSumsInFloat64AtOddShapes) {
  const MatvecShape shape = {.bytes = true, .teams = 3, .split_k = 2, .rows = 8};
  for (const uint32_t n : {1u, 31u, 33u, 100u}) {
    Check({.format = GetParam(), .shape = shape, .rows = 3, .n_dim = n, .k_dim = 41 * 32});
  }
  Check({.format = GetParam(), .shape = shape, .rows = 19, .n_dim = 40, .k_dim = 32});
  MatvecShape unit_scales = shape;
  unit_scales.parts = unit_scales.batch = 2;
  unit_scales.unit_scales = true;
  Check({.format = GetParam(), .shape = unit_scales, .rows = 11, .n_dim = 33, .k_dim = 41 * 32});
}

INSTANTIATE_TEST_SUITE_P(Formats, CoopMatvecTest,
                         ::testing::Values(DType::kQ8_0, DType::kQ4_0, DType::kQ5_0, DType::kIq4Nl),
                         [](const auto& test) { return std::string(Traits(test.param).name); });

class CoopMatvecFormTest : public CoopMatvecTest {};

TEST_P(CoopMatvecFormTest, TakesTilesAndBlocksTogether) {
  Check({.format = GetParam(),
         .shape = {.bytes = true, .teams = 2, .tiles = 2, .rows = 16, .parts = 2, .batch = 4},
         .rows = 27,
         .n_dim = 97,
         .k_dim = 25 * 32,
         .shard_rows = {32}});
}

TEST_P(CoopMatvecFormTest, TakesScalesOnceAUnit) {
  for (const auto& [parts, batch, rows] :
       {std::tuple{1u, 4u, 16u}, {1u, 2u, 8u}, {2u, 4u, 8u}, {4u, 2u, 16u}}) {
    Check({.format = GetParam(),
           .shape = {.bytes = true,
                     .teams = 2,
                     .tiles = 2,
                     .rows = rows,
                     .parts = parts,
                     .batch = batch,
                     .unit_scales = true},
           .rows = 27,
           .n_dim = 97,
           .k_dim = 25 * 32,
           .shard_rows = {32}});
  }
}

TEST_P(CoopMatvecFormTest, ActivatesPairsOfRows) {
  for (const ActivationFormat out : {ActivationFormat::kF16, ActivationFormat::kInt8}) {
    Check({.format = GetParam(),
           .shape = {.bytes = true, .teams = 2, .tiles = 2, .rows = 8, .parts = 2, .batch = 2},
           .rows = 5,
           .n_dim = 192,
           .k_dim = 9 * 32,
           .geglu = true,
           .out_format = out,
           .shard_rows = {64}});
  }
}

TEST_P(CoopMatvecFormTest, QuantisesFloatsOnItsWay) {
  Check({.format = GetParam(),
         .shape = {.bytes = true, .teams = 2, .rows = 8},
         .rows = 6,
         .n_dim = 40,
         .k_dim = 416,
         .x_format = ActivationFormat::kF16});
}

// The same division of k gives the same bits, whatever else differs.
TEST_P(CoopMatvecFormTest, ARowsBitsDoNotDependOnItsNeighbours) {
  constexpr uint32_t kColumns = 1312, kOut = 45;
  const TileMatrix matrix(device(), GetParam(), kOut, kColumns, 3);
  const TestActivations x(7, kColumns, 4);
  MatvecCase c{.format = GetParam(),
               .shape = {.bytes = true, .teams = 3, .split_k = 2, .rows = 8},
               .rows = 7,
               .n_dim = kOut,
               .k_dim = kColumns};
  const std::vector<float> together = Sums(c, Multiply(c, matrix, x));
  for (const auto& [rows, at_once, tiles] : {std::tuple{1u, 8u, 1u}, {7u, 16u, 2u}}) {
    c.rows = rows;
    c.shape.rows = at_once;
    c.shape.tiles = tiles;
    c.shape.parts = c.shape.batch = tiles;
    c.shape.unit_scales = tiles > 1;
    const std::vector<float> alone = Sums(c, Multiply(c, matrix, x));
    ASSERT_EQ(0, std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float))) << c;
  }
}

TEST_P(CoopMatvecFormTest, RunsOverNoRowsWithoutATrace) {
  const TileMatrix matrix(device(), GetParam(), 64, 64, 5);
  const DeviceArray step = MakeStep(0), output(device(), 64 * sizeof(float));
  Run({MatvecLaunch(tuning_, matrix.tensor, matrix.tensor.shards[0], {.bytes = true, .rows = 8},
                    {.count = RowCount(step),
                     .x = output.address(),
                     .destination = output.address(),
                     .out_stride = 64,
                     .max_rows = 8})});
  EXPECT_TRUE(testing::IsGuard(output.data()));
}

INSTANTIATE_TEST_SUITE_P(Formats, CoopMatvecFormTest, ::testing::Values(DType::kQ4_0),
                         [](const auto& test) { return std::string(Traits(test.param).name); });

class CoopMatvecChoiceTest : public MatvecTest {};

TEST_F(CoopMatvecChoiceTest, RowsAndSizeOfAMatmulDecide) {
  tuning_.matvec_max_rows = 16;
  tuning_.matrix = {.fragments = {.path = MatrixPath::kQuads}, .int8_sums = true};
  tuning_.max_shared_bytes = 48 << 10;
  const DeviceTensor small = {DType::kQ4_0, 5376, 4096, {}},
                     large = {DType::kQ4_0, 43008, 5376, {}};
  const DeviceTensor k_quant = {DType::kQ4_K, 5376, 4096, {}};
  const auto kind = [this](const DeviceTensor& weights, uint32_t rows) {
    const gpu::Matmul matmul = ChooseMatmul(tuning_, weights, false, true, rows);
    return std::pair(matmul.kernel, matmul.shape.bytes);
  };
  EXPECT_EQ(kind(small, 4), std::pair(MatmulKernel::kMatvec, false));
  EXPECT_EQ(kind(small, 8), std::pair(MatmulKernel::kMatvec, true));
  EXPECT_EQ(kind(small, 16), std::pair(MatmulKernel::kMatvec, true));
  EXPECT_EQ(kind(small, 32), std::pair(MatmulKernel::kMatrix, false));
  EXPECT_EQ(kind(large, 8), std::pair(MatmulKernel::kMatvec, true));
  EXPECT_EQ(kind(large, 16), std::pair(MatmulKernel::kMatrix, false));
  EXPECT_EQ(kind(k_quant, 8), std::pair(MatmulKernel::kMatrix, false));
  tuning_.matrix.int8_sums = false;
  EXPECT_EQ(kind(small, 8), std::pair(MatmulKernel::kMatrix, false));
  EXPECT_EQ(kind(small, 4), std::pair(MatmulKernel::kMatvec, false));
}

}  // namespace
}  // namespace tandem::gpu
