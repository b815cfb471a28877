// coop_matvec.comp, on emulated matrices where the device has none of eight columns.
#include "services/gpu_worker/kernels/matmul.h"
#include "services/gpu_worker/kernels/matvec_case_for_test.h"
#include "shaders/tandem_gpu_emulated_shaders.h"

namespace tandem::gpu {
namespace {

constexpr auto kFragments = ActivationFormat::kFragments;

class CoopMatvecTest : public MatvecTest, public ::testing::WithParamInterface<DType> {
 protected:
  void SetUp() override {
    MatvecTest::SetUp();
    if (IsSkipped() || UsesNarrowMatrices(tuning_, DType::kQ4_0, 8)) return;
    kernels().Replace(KernelId::kCoopMatvec, shaders::kCoopMatvecEmulated);
    tuning_.matrix.narrow = true;
    tuning_.matrix.fragments = {.path = MatrixPath::kQuads, .pair_rows = 10, .pair_halves = 12};
  }
};

TEST_P(CoopMatvecTest, MatchesSumsInFloat64AtOddShapes) {
  const MatvecShape shape = {.narrow = true, .teams = 3, .split_k = 2, .rows = 8};
  const bool super_blocks = Traits(GetParam()).block_elements == 256;
  for (const uint32_t n : {1u, 33u}) {
    Check({.format = GetParam(),
           .shape = shape,
           .rows = 3,
           .n_dim = n,
           .k_dim = super_blocks ? 5 * 256u : 41 * 32u,
           .x_format = kFragments});
  }
  Check({.format = GetParam(),
         .shape = shape,
         .rows = 19,
         .n_dim = 40,
         .k_dim = super_blocks ? 256u : 32u,
         .x_format = kFragments});
}

INSTANTIATE_TEST_SUITE_P(Formats, CoopMatvecTest,
                         ::testing::Values(DType::kF16, DType::kBf16, DType::kQ8_0, DType::kQ4_0,
                                           DType::kQ5_0, DType::kIq4Nl, DType::kQ4_K, DType::kQ5_K,
                                           DType::kQ6_K),
                         [](const auto& test) { return std::string(Traits(test.param).name); });

class CoopMatvecFormTest : public CoopMatvecTest {};

TEST_P(CoopMatvecFormTest, TakesPassesOfManyRows) {
  for (const auto& [rows, at_once] : {std::pair{27u, 16u}, {45u, 32u}}) {
    Check({.format = GetParam(),
           .shape = {.narrow = true, .teams = 2, .rows = at_once},
           .rows = rows,
           .n_dim = 97,
           .k_dim = 25 * 32,
           .x_format = kFragments,
           .x_scale = 64.0f,
           .shard_rows = {32}});
  }
}

TEST_P(CoopMatvecFormTest, ActivatesPairsOfRows) {
  for (const ActivationFormat out :
       {ActivationFormat::kF32, ActivationFormat::kF16, ActivationFormat::kFragments}) {
    Check({.format = GetParam(),
           .shape = {.narrow = true, .teams = 2, .rows = 8},
           .rows = 5,
           .n_dim = 192,
           .k_dim = 9 * 32,
           .x_format = kFragments,
           .geglu = true,
           .out_format = out,
           .shard_rows = {64}});
  }
}

TEST_P(CoopMatvecFormTest, OrdersHalvesOnItsWay) {
  for (const ActivationFormat x : {ActivationFormat::kF16, ActivationFormat::kBf16}) {
    for (const uint32_t rows : {1u, 3u, 6u, 17u}) {
      Check({.format = GetParam(),
             .shape = {.narrow = true, .teams = 2, .rows = 8},
             .rows = rows,
             .n_dim = 40,
             .k_dim = 416,
             .x_format = x});
    }
  }
}

// The same division of k gives the same bits, whatever else differs.
TEST_P(CoopMatvecFormTest, ARowsBitsDoNotDependOnItsNeighbours) {
  constexpr uint32_t kColumns = 1312, kOut = 45;
  const TileMatrix matrix(device(), GetParam(), kOut, kColumns, 3);
  const TestActivations x(7, kColumns, 4);
  MatvecCase c{.format = GetParam(),
               .shape = {.narrow = true, .teams = 3, .split_k = 2, .rows = 8},
               .rows = 7,
               .n_dim = kOut,
               .k_dim = kColumns,
               .x_format = kFragments};
  const std::vector<float> together = Sums(c, Multiply(c, matrix, x));
  for (const auto& [rows, at_once] : {std::pair{1u, 8u}, {7u, 16u}}) {
    c.rows = rows;
    c.shape.rows = at_once;
    const std::vector<float> alone = Sums(c, Multiply(c, matrix, x));
    ASSERT_EQ(0, std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float))) << c;
  }
}

TEST_P(CoopMatvecFormTest, RunsOverNoRowsWithoutATrace) {
  const TileMatrix matrix(device(), GetParam(), 64, 64, 5);
  const DeviceArray step = MakeStep(0), output(device(), 64 * sizeof(float));
  Run({MatvecLaunch(tuning_, matrix.tensor, matrix.tensor.shards[0], {.narrow = true, .rows = 8},
                    {.count = RowCount(step),
                     .x = output.address(),
                     .x_format = kFragments,
                     .destination = output.address(),
                     .out_stride = 64,
                     .max_rows = 8})});
  EXPECT_TRUE(testing::IsGuard(output.data()));
}

INSTANTIATE_TEST_SUITE_P(Formats, CoopMatvecFormTest, ::testing::Values(DType::kQ4_0),
                         [](const auto& test) { return std::string(Traits(test.param).name); });

class CoopMatvecChoiceTest : public MatvecTest {};

TEST_F(CoopMatvecChoiceTest, NumberOfRowsDecides) {
  tuning_.matvec_max_rows = 16;
  tuning_.matrix = {.fragments = {.path = MatrixPath::kQuads}, .narrow = true};
  tuning_.max_shared_bytes = 48 << 10;
  const auto kind = [this](DType dtype, uint32_t rows) {
    const DeviceTensor weights = {dtype, 5376, 4096, {}};
    const gpu::Matmul matmul = ChooseMatmul(tuning_, weights, false, true, rows);
    return std::pair(matmul.kernel, matmul.shape.narrow);
  };
  EXPECT_EQ(kind(DType::kQ4_0, 2), std::pair(MatmulKernel::kMatvec, false));
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_K, DType::kBf16}) {
    EXPECT_EQ(kind(dtype, 4), std::pair(MatmulKernel::kMatvec, false));
    EXPECT_EQ(kind(dtype, 8), std::pair(MatmulKernel::kMatvec, true));
    EXPECT_EQ(kind(dtype, 32), std::pair(MatmulKernel::kMatvec, true));
    EXPECT_EQ(kind(dtype, 64), std::pair(MatmulKernel::kMatrix, false));
  }
  EXPECT_EQ(kind(DType::kF32, 8), std::pair(MatmulKernel::kPlain, false));
  // Between GeGLU and down: fragments, or float32 if gate and up cannot write them.
  const auto between = [this](DType gate_up, DType down) {
    const DeviceTensor weights = {gate_up, 8192, 4096, {}};
    gpu::Matmul reader = ChooseMatmul(tuning_, {down, 4096, 4096, {}}, false, true, 8);
    MatchGeglu(ChooseMatmul(tuning_, weights, true, false, 8), weights, reader);
    return std::tuple(reader.kernel, reader.input, reader.input_scale);
  };
  EXPECT_EQ(between(DType::kQ4_0, DType::kQ6_K),
            std::tuple(MatmulKernel::kMatvec, kFragments, kGegluHalfScale));
  EXPECT_EQ(between(DType::kF32, DType::kQ4_0),
            std::tuple(MatmulKernel::kPlain, ActivationFormat::kF32, 1.0f));
  tuning_.matrix.narrow = false;
  EXPECT_EQ(kind(DType::kQ4_0, 8), std::pair(MatmulKernel::kMatrix, false));
  EXPECT_EQ(kind(DType::kQ4_0, 4), std::pair(MatmulKernel::kMatvec, false));
}

}  // namespace
}  // namespace tandem::gpu
