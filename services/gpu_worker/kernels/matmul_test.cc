// Matmuls against the reference, element by element, in every format and odd shape.
#include <cmath>
#include <limits>

#include "services/common/base/half.h"
#include "services/common/reference/ops.h"
#include "services/common/testing/compare.h"
#include "services/gpu_worker/kernels/launches.h"
#include "services/gpu_worker/kernels/packed_matrix_for_test.h"

namespace tandem::gpu {
namespace {

struct Case {
  DType dtype = DType::kF32;
  uint32_t rows = 1;
  uint32_t n_dim = 1;
  uint32_t k_dim = 32;
  ActivationFormat x_format = ActivationFormat::kF32;
  bool geglu = false;
  std::vector<uint64_t> shard_rows = {};
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << Traits(c.dtype).name << " rows " << c.rows << " n " << c.n_dim << " k " << c.k_dim
             << " x " << static_cast<int>(c.x_format) << (c.geglu ? " geglu" : "") << " shards "
             << c.shard_rows.size();
}

// In float16 or bfloat16.
std::vector<uint16_t> Narrow(std::span<const float> x, ActivationFormat format) {
  std::vector<uint16_t> numbers(x.size());
  std::ranges::transform(x, numbers.begin(),
                         format == ActivationFormat::kBf16 ? FloatToBf16 : FloatToHalf);
  return numbers;
}

class MatmulTest : public KernelTest {
 protected:
  // The kernel that reads texels where that is what the device is for; else the one that reads by
  // address.
  void Use(bool texels) {
    tuning_ = tuning();
    if (!texels) tuning_.max_texels = 0;
  }

  // Runs `c` over the first c.rows rows of `x`, recorded for `bucket` rows.
  std::vector<float> Multiply(const Case& c, const PackedMatrix& matrix,
                              const std::vector<float>& x, uint32_t bucket) {
    const uint32_t stride = (c.geglu ? c.n_dim / 2 : c.n_dim) + 3;
    const DeviceArray step = MakeStep(c.rows);
    std::vector<float> all = x;  // rows past the count are never read
    all.resize(size_t{std::max(bucket, c.rows)} * c.k_dim, std::numeric_limits<float>::quiet_NaN());
    const DeviceArray input = c.x_format == ActivationFormat::kF32
                                  ? DeviceArray(device(), all)
                                  : DeviceArray(device(), Narrow(all, c.x_format));
    const DeviceArray output(device(), uint64_t{c.rows} * stride * sizeof(float));
    std::vector<Launch> launches;
    for (const DeviceShard& shard : matrix.tensor.shards) {
      launches.push_back(PlainMatmulLaunch(tuning_, matrix.tensor, shard,
                                           {.count = RowCount(step),
                                            .x = input.address(),
                                            .x_format = c.x_format,
                                            .destination = output.address(),
                                            .out_stride = stride,
                                            .geglu = c.geglu,
                                            .max_rows = bucket}));
    }
    Run(launches);
    EXPECT_TRUE(output.Intact()) << c;
    std::vector<float> rows;
    for (uint32_t m = 0; m < c.rows; ++m) {
      const auto row = output.data().subspan(uint64_t{m} * stride * 4, uint64_t{stride} * 4);
      EXPECT_TRUE(testing::IsGuard(row.last(12))) << c << " row " << m;
      const auto floats = output.as<float>().subspan(uint64_t{m} * stride, stride - 3);
      rows.insert(rows.end(), floats.begin(), floats.end());
    }
    return rows;
  }

  void Check(const Case& c) {
    SCOPED_TRACE(c);
    const PackedMatrix matrix(device(), c.dtype, c.n_dim, c.k_dim, 1, c.shard_rows);
    std::vector<float> x = RandomFloats(size_t{c.rows} * c.k_dim, 2);
    if (c.x_format != ActivationFormat::kF32) {
      std::ranges::transform(Narrow(x, c.x_format), x.begin(),
                             c.x_format == ActivationFormat::kBf16 ? Bf16ToFloat : HalfToFloat);
    }
    const std::vector<float> actual = Multiply(c, matrix, x, std::bit_ceil(c.rows));
    std::vector<float> expected(size_t{c.rows} * c.n_dim);
    reference::MatMul(x, c.rows, matrix.values, expected);
    double largest = 0;  // of the norms of the weights' rows
    for (uint32_t n = 0; n < c.n_dim; ++n) {
      largest = std::max(largest, testing::Norm(matrix.values.row(n)));
    }
    double bound = 0;
    for (uint32_t m = 0; m < c.rows; ++m) {
      const auto row = std::span<const float>(x).subspan(size_t{m} * c.k_dim, c.k_dim);
      bound = std::max(bound, testing::DotBound(c.k_dim, testing::Norm(row), largest));
    }
    if (!c.geglu) {
      EXPECT_TRUE(testing::IsNear(actual, expected, bound));
      return;
    }
    std::vector<float> activated(actual.size());
    double highest = 0;
    for (size_t i = 0; i < activated.size(); ++i) {
      activated[i] = reference::GeluTanh(expected[2 * i]) * expected[2 * i + 1];
      highest =
          std::max<double>({highest, std::abs(expected[2 * i]), std::abs(expected[2 * i + 1])});
    }
    // |d gelu| <= 1.13 |d g|; exp is good to 3 + 2 |x| units (Vulkan, precision of SPIR-V).
    EXPECT_TRUE(testing::IsNear(actual, activated, 2.3 * bound * highest,
                                (8 + 4 * highest) * testing::kEpsilonF32));
  }

  Tuning tuning_;
};

class MatmulFormatTest : public MatmulTest,
                         public ::testing::WithParamInterface<std::tuple<DType, bool>> {
 protected:
  void SetUp() override {
    MatmulTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const bool texels = std::get<1>(GetParam());
    if (texels && tuning().max_texels == 0) GTEST_SKIP() << "the device is not for texels";
    Use(texels);
  }
};

TEST_P(MatmulFormatTest, MatchesTheReferenceAtOddShapes) {
  const DType dtype = std::get<0>(GetParam());
  const uint32_t k = Traits(dtype).block_elements == 256 ? 768 : 96;
  const uint32_t tile =
      tuning().subgroup_size * tuning().matmul_subgroups * tuning().matmul_columns;
  for (const uint32_t n : {1u, 7u, tile - 1, tile, tile + 1}) {
    Check({.dtype = dtype, .rows = 3, .n_dim = n, .k_dim = k});
  }
  for (const uint32_t rows : {1u, 2u, 7u, 8u, 9u, 17u}) {
    Check({.dtype = dtype, .rows = rows, .n_dim = 43, .k_dim = k});
  }
  Check({.dtype = dtype, .rows = 5, .n_dim = 41, .k_dim = k, .shard_rows = {1, 17, 6}});
  for (const auto format : {ActivationFormat::kF16, ActivationFormat::kBf16}) {
    for (const uint32_t rows : {1u, 3u, 17u}) {
      Check({.dtype = dtype, .rows = rows, .n_dim = 41, .k_dim = k, .x_format = format});
    }
  }
  Check({.dtype = dtype, .rows = 9, .n_dim = 50, .k_dim = k, .geglu = true, .shard_rows = {2, 26}});
}

// A row's bits are the same alone, among others, and in a recording for more rows than there are.
TEST_P(MatmulFormatTest, ARowsBitsDoNotDependOnItsNeighbours) {
  const DType dtype = std::get<0>(GetParam());
  const uint32_t k = Traits(dtype).block_elements == 256 ? 512 : 160;
  const uint32_t n = 37;
  for (const bool geglu : {false, true}) {
    const PackedMatrix matrix(device(), dtype, n - (geglu ? 1 : 0), k, 3);
    Case c{.dtype = dtype, .rows = 21, .n_dim = n - (geglu ? 1 : 0), .k_dim = k, .geglu = geglu};
    const std::vector<float> x = RandomFloats(size_t{c.rows} * k, 4);
    const std::vector<float> together = Multiply(c, matrix, x, 32);
    const size_t width = together.size() / c.rows;
    for (const auto& [rows, bucket] :
         {std::pair{1u, 1u}, {2u, 2u}, {3u, 4u}, {5u, 8u}, {1u, 512u}}) {
      c.rows = rows;
      const std::vector<float> alone = Multiply(c, matrix, x, bucket);
      ASSERT_EQ(0, std::memcmp(alone.data(), together.data(), rows * width * sizeof(float)))
          << c << " in a bucket of " << bucket;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, MatmulFormatTest,
                         ::testing::Combine(::testing::ValuesIn(AllDTypes().begin(),
                                                                AllDTypes().end()),
                                            ::testing::Bool()),
                         [](const auto& test) {
                           return std::string(Traits(std::get<0>(test.param)).name) +
                                  (std::get<1>(test.param) ? "_texels" : "_address");
                         });

// What texel buffers cannot hold is read by address.
TEST_F(MatmulTest, TakesTheKernelThatCanHoldTheWeights) {
  Use(true);
  if (tuning_.max_texels == 0) GTEST_SKIP() << "the device is not for texels";
  const PackedMatrix matrix(device(), DType::kQ8_0, 64, 64, 7);
  const auto kernel = [&] {
    return PlainMatmulLaunch(tuning_, matrix.tensor, matrix.tensor.shards[0], {.max_rows = 1})
        .kernel;
  };
  tuning_.max_texels = 64 * 64 / 16;
  EXPECT_EQ(kernel(), KernelId::kTexelMatmulF32);
  --tuning_.max_texels;
  EXPECT_EQ(kernel(), KernelId::kMatmul);
}

TEST_F(MatmulTest, RunsOverNoRowsWithoutATrace) {
  Use(true);
  const PackedMatrix matrix(device(), DType::kQ8_0, 64, 64, 5);
  const DeviceArray step = MakeStep(0);
  const DeviceArray output(device(), 64 * sizeof(float));
  Run({PlainMatmulLaunch(tuning_, matrix.tensor, matrix.tensor.shards[0],
                         {.count = RowCount(step),
                          .x = output.address(),
                          .destination = output.address(),
                          .out_stride = 64,
                          .max_rows = 8})});
  EXPECT_TRUE(testing::IsGuard(output.data()));
}

// Gelu at both ends: exp overflows and underflows, the result must not.
TEST_F(MatmulTest, GegluHoldsForLargeGates) {
  Use(true);
  PackedMatrix matrix(device(), DType::kF32, 6, 32, 6);
  const float gates[] = {300.0f, -300.0f, 1e-6f};
  auto weights = matrix.arrays[0].as<float>();
  std::ranges::fill(weights, 0.0f);
  constexpr uint32_t kPiece = 4;  // elements: each row's first lie side by side
  for (uint32_t i = 0; i < 3; ++i) {
    weights[2 * i * kPiece] = gates[i];
    weights[(2 * i + 1) * kPiece] = 2.0f;
  }
  std::vector<float> x(32, 0.0f);
  x[0] = 1.0f;
  const std::vector<float> out =
      Multiply({.rows = 1, .n_dim = 6, .k_dim = 32, .geglu = true}, matrix, x, 1);
  EXPECT_EQ(out[0], 600.0f);
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_NEAR(out[2], 1e-6f, 1e-11f);
}

}  // namespace
}  // namespace tandem::gpu
