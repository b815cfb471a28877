// Matmuls on matrix units against plain sums: formats, odd shapes, split-K, GeGLU.  Where the
// device has no matrix units the same shader runs on emulated ones, in each of its forms.
#include <cmath>

#include "services/common/base/half.h"
#include "services/common/reference/ops.h"
#include "services/common/testing/compare.h"
#include "services/gpu_worker/kernels/activation_format.h"
#include "services/gpu_worker/kernels/matrix_launches.h"
#include "services/gpu_worker/kernels/tile_matrix_for_test.h"
#include "shaders/tandem_gpu_emulated_shaders.h"

namespace tandem::gpu {
namespace {

using testing::kEpsilonF16;

struct Case {
  DType format = DType::kQ4_0;
  uint32_t rows = 1;
  uint32_t n_dim = 1;
  uint32_t k_dim = 256;
  MatrixTile tile = {.columns = 16, .rows = 16, .subgroups = 2};
  MatrixOutput output = MatrixOutput::kF32;
  std::vector<uint32_t> shard_rows = {};
  float x_scale = 1.0f;
  // Rows of the step that other launches make: half of them before these, which are a power of two.
  uint32_t others = 0;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << Traits(c.format).name << " rows " << c.rows << " n " << c.n_dim << " k " << c.k_dim
             << " tile " << c.tile.columns << "x" << c.tile.rows << "x" << c.tile.subgroups
             << " chunk " << c.tile.chunk << " groups " << c.tile.groups << " output "
             << static_cast<int>(c.output) << " shards " << c.shard_rows.size() << " others "
             << c.others;
}

class MatrixMatmulTest : public KernelTest {
 protected:
  // A tuning for `path`, emulated where there are no matrix units; skips others.
  void Choose(MatrixPath path) {
    tuning_ = tuning();
    if (tuning_.matrix.fragments.path == MatrixPath::kNone) {
      kernels().Replace(KernelId::kCoopMatmulShared, shaders::kCoopMatmulSharedEmulated);
      kernels().Replace(KernelId::kCoopMatmulQuads, shaders::kCoopMatmulQuadsEmulated);
      kernels().Replace(KernelId::kCoopMatmulRows, shaders::kCoopMatmulRowsEmulated);
      tuning_.matrix.fragments = {.path = path, .pair_rows = 10, .pair_halves = 12};
    } else if (path != MatrixPath::kShared && path != tuning_.matrix.fragments.path) {
      GTEST_SKIP() << "not how this device holds matrices";
    } else {
      tuning_.matrix.fragments.path = path;
    }
    tuning_.matrix.min_rows = 1;
  }

  // `x`: in float16, or in bfloat16 as `x_format` says.
  std::vector<float> Multiply(const Case& c, const TileMatrix& matrix,
                              const std::vector<uint16_t>& x,
                              ActivationFormat x_format = ActivationFormat::kF16) {
    tuning_.matrix.tiles = {c.tile};
    const bool geglu = c.output != MatrixOutput::kF32;
    const uint32_t width = geglu ? c.n_dim / 2 : c.n_dim, stride = width + 3;
    const uint32_t bytes = c.output == MatrixOutput::kGegluF16 ? 2 : 4;
    const DeviceArray step = MakeStep(c.rows + c.others);
    const DeviceArray input(device(), x);
    const DeviceArray output(device(), uint64_t{c.rows} * stride * bytes);
    const DeviceArray sums(device(), 1 << 20);
    const DeviceArray arrivals(device(), std::vector<uint32_t>(kMatrixMaxTiles, 0));
    std::vector<Launch> launches;
    for (const DeviceShard& shard : matrix.tensor.shards) {
      launches.push_back(MatrixMatmulLaunch(
          tuning_, matrix.tensor, shard,
          {.count = RowCount(step),
           .x = input.address(),
           .x_format = x_format,
           .x_scale = c.x_scale,
           .output = c.output,
           .destination = output.address(),
           .out_stride = stride,
           .first_row = c.others / 2,
           .max_rows = std::bit_ceil(c.rows),
           .workspace = {sums.address(), sums.data().size(), arrivals.address()}}));
    }
    Run(launches);
    EXPECT_TRUE(output.Intact()) << c;
    EXPECT_TRUE(sums.Intact()) << c;
    for (const uint32_t n : arrivals.as<uint32_t>()) EXPECT_EQ(n, 0u) << c;
    std::vector<float> rows;
    for (uint32_t r = 0; r < c.rows; ++r) {
      const auto row =
          output.data().subspan(uint64_t{r} * stride * bytes, uint64_t{stride} * bytes);
      EXPECT_TRUE(testing::IsGuard(row.last(3 * bytes))) << c << " row " << r;
      const size_t first = size_t{r} * stride;
      if (bytes == 4) {
        const auto floats = output.as<float>().subspan(first, width);
        rows.insert(rows.end(), floats.begin(), floats.end());
      } else {
        for (const float v : testing::HalvesToFloats(output.as<uint16_t>().subspan(first, width))) {
          rows.push_back(v * kGegluHalfScale);
        }
      }
    }
    return rows;
  }

  void Check(const Case& c) {
    SCOPED_TRACE(c);
    const TileMatrix matrix(device(), c.format, c.n_dim, c.k_dim, 1, c.shard_rows);
    const float scale = c.output == MatrixOutput::kF32 ? 1.0f : 0.05f;
    const auto halves =
        testing::FloatsToHalves(RandomFloats(size_t{c.rows} * c.k_dim, 2, scale / c.x_scale));
    const std::vector<float> x = testing::HalvesToFloats(halves);
    const std::vector<float> actual = Multiply(c, matrix, halves);
    // A weight is rounded to float16, its scale before it and for q4_k and q5_k its minimum.
    const bool has_minimum = c.format == DType::kQ4_K || c.format == DType::kQ5_K;
    const double weight_error = (has_minimum ? 4 : 1) * kEpsilonF16;
    std::vector<float> expected(size_t{c.rows} * c.n_dim);
    double bound = 0;
    for (uint32_t r = 0; r < c.rows; ++r) {
      const auto row = std::span(x).subspan(size_t{r} * c.k_dim, c.k_dim);
      for (uint32_t n = 0; n < c.n_dim; ++n) {
        double sum = 0;
        for (uint32_t k = 0; k < c.k_dim; ++k) sum += double{row[k]} * matrix.row(n)[k];
        expected[size_t{r} * c.n_dim + n] = static_cast<float>(sum * c.x_scale);
        bound = std::max(bound,
                         c.x_scale * testing::DotBound(c.k_dim, testing::Norm(row),
                                                       testing::Norm(matrix.row(n)), weight_error));
      }
    }
    if (c.output == MatrixOutput::kF32) {
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
    // As in matmul_test.cc; float16 rounds once more, about zero to a fixed step.
    const bool half = c.output == MatrixOutput::kGegluF16;
    EXPECT_TRUE(testing::IsNear(
        actual, activated, 2.3 * bound * highest + (half ? kGegluHalfScale * 0x1p-25 : 0.0),
        (8 + 4 * highest) * testing::kEpsilonF32 + (half ? kEpsilonF16 : 0.0)));
  }

  Tuning tuning_;
};

class MatrixPathTest : public MatrixMatmulTest, public ::testing::WithParamInterface<MatrixPath> {
 protected:
  void SetUp() override {
    MatrixMatmulTest::SetUp();
    if (!IsSkipped()) Choose(GetParam());
  }
};

TEST_P(MatrixPathTest, FormatsMatchThePlainSum) {
  for (const auto format : {DType::kF16, DType::kQ8_0, DType::kQ6_K}) {
    Check({.format = format, .rows = 5, .n_dim = 45, .k_dim = 512});
  }
}

TEST_P(MatrixPathTest, OddShapesMatchThePlainSum) {
  for (const uint32_t n : {1u, 15u, 16u, 17u, 32u, 33u, 67u}) {
    Check({.rows = 3, .n_dim = n, .k_dim = 96});
  }
  for (const uint32_t rows : {1u, 15u, 16u, 17u, 35u}) {
    Check({.rows = rows, .n_dim = 37, .k_dim = 160});
  }
  for (const uint32_t k : {32u, 64u, 96u, 128u, 224u}) {
    Check({.rows = 17, .n_dim = 40, .k_dim = k});
  }
  Check({.rows = 9, .n_dim = 141, .k_dim = 128, .shard_rows = {32, 64}});
  Check({.rows = 9, .n_dim = 70, .k_dim = 128, .x_scale = 64.0f});
}

// Numbers that both formats hold give the same bits.
TEST_P(MatrixPathTest, Bfloat16GivesWhatTheSameNumbersInFloat16Give) {
  for (const uint32_t rows : {1u, 3u, 17u}) {
    for (const uint32_t chunk : {64u, 128u}) {
      const Case c = {.rows = rows,
                      .n_dim = 37,
                      .k_dim = 416,
                      .tile = {.columns = 16, .rows = 16, .subgroups = 2, .chunk = chunk}};
      SCOPED_TRACE(c);
      const TileMatrix matrix(device(), c.format, c.n_dim, c.k_dim, 3);
      std::vector<uint16_t> bf16, halves;
      for (const float value : RandomFloats(size_t{rows} * c.k_dim, 4)) {
        bf16.push_back(FloatToBf16(value));
        halves.push_back(FloatToHalf(Bf16ToFloat(bf16.back())));
      }
      // float16 rounds what lies below its normal range, and has no more than 65504.
      bf16[0] = FloatToBf16(0x1.02p-20f);
      bf16[1] = FloatToBf16(-0x1.fep-27f);
      bf16[2] = FloatToBf16(0.0f);
      for (const int i : {0, 1, 2}) halves[i] = FloatToHalf(Bf16ToFloat(bf16[i]));
      EXPECT_EQ(Multiply(c, matrix, bf16, ActivationFormat::kBf16), Multiply(c, matrix, halves));
    }
  }
}

TEST_P(MatrixPathTest, SplitSumsAreWholeAndTheSameEveryTime) {
  // Six tiles: all of them in four parts, then four tiles whole and two in halves.
  for (const uint32_t groups : {24u, 4u}) {
    const MatrixTile tile = {.columns = 16, .rows = 16, .subgroups = 2, .groups = groups};
    const Case c = {.rows = 18, .n_dim = 70, .k_dim = 1056, .tile = tile};
    Check(c);
    const TileMatrix matrix(device(), c.format, c.n_dim, c.k_dim, 3);
    const auto x = testing::FloatsToHalves(RandomFloats(size_t{c.rows} * c.k_dim, 4));
    const std::vector<float> first = Multiply(c, matrix, x);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Multiply(c, matrix, x), first);
  }
}

// The recording is for 128 rows, in tiles of 16; each number of them shares six columns of tiles anew.
TEST_P(MatrixPathTest, AnyNumberOfRowsOfARecordingMatchesThePlainSum) {
  for (const uint32_t rows : {65u, 80u, 81u, 100u, 127u, 128u}) {
    Check({.rows = rows,
           .n_dim = 90,
           .k_dim = 544,
           .tile = {.columns = 16, .rows = 16, .subgroups = 1, .groups = 13}});
  }
}

TEST_P(MatrixPathTest, RowsOfOtherLaunchesAreLeftAlone) {
  for (const uint32_t groups : {1u, 13u, 64u}) {
    Check({.rows = 32,
           .n_dim = 90,
           .k_dim = 544,
           .tile = {.columns = 16, .rows = 16, .subgroups = 1, .groups = groups},
           .others = 96});
  }
}

TEST_P(MatrixPathTest, GegluMatchesTheReference) {
  for (const auto output : {MatrixOutput::kGegluF32, MatrixOutput::kGegluF16}) {
    Check({.rows = 19, .n_dim = 70, .k_dim = 256, .output = output, .shard_rows = {32}});
    Check({.rows = 7,
           .n_dim = 66,
           .k_dim = 1024,
           .tile = {.columns = 16, .rows = 16, .subgroups = 2, .groups = 9},
           .output = output,
           .x_scale = 8.0f});
  }
}

// Rows of three heads of 24, in pages of 16 rows, of one row, and as they are with an activation.
TEST_P(MatrixPathTest, OutputsWithBiasMatchTheReference) {
  constexpr uint32_t kRows = 37, kColumns = 72, kDepth = 544, kHeadDim = 24, kHeads = 3;
  struct Layout {
    MatrixOutput output;
    uint32_t stride, block_tokens, groups;
  };
  for (const auto& [output, stride, block_tokens, groups] :
       {Layout{MatrixOutput::kHeadsF16, kColumns, 16, 1},
        Layout{MatrixOutput::kHeadsF16, kColumns, 1, 40},
        Layout{MatrixOutput::kBiasGeluF16, kColumns + 8, 1, 40}}) {
    SCOPED_TRACE(block_tokens);
    tuning_.matrix.tiles = {{.columns = 16, .rows = 16, .subgroups = 2, .groups = groups}};
    const TileMatrix matrix(device(), DType::kF16, kColumns, kDepth, 1, {32});
    const auto halves = testing::FloatsToHalves(RandomFloats(kRows * kDepth, 2, 0.1f));
    const std::vector<float> x = testing::HalvesToFloats(halves), bias = RandomFloats(kColumns, 3);
    const DeviceArray step = MakeStep(kRows), input(device(), halves), biases(device(), bias);
    const DeviceArray out(device(),
                          uint64_t{DivideUp(kRows, block_tokens)} * block_tokens * stride * 2);
    const DeviceArray sums(device(), 1 << 20);
    const DeviceArray arrivals(device(), std::vector<uint32_t>(kMatrixMaxTiles, 0));
    std::vector<Launch> launches;
    for (const DeviceShard& shard : matrix.tensor.shards) {
      launches.push_back(
          MatrixMatmulLaunch(tuning_, matrix.tensor, shard,
                             {.count = RowCount(step),
                              .x = input.address(),
                              .output = output,
                              .destination = out.address(),
                              .out_stride = stride,
                              .max_rows = 64,
                              .workspace = {sums.address(), sums.data().size(), arrivals.address()},
                              .bias = biases.address(),
                              .head_dim = kHeadDim,
                              .block_tokens = block_tokens}));
    }
    Run(launches);
    EXPECT_TRUE(out.Intact());
    const bool gelu = output == MatrixOutput::kBiasGeluF16;
    std::vector<bool> written(out.as<uint16_t>().size());
    for (uint32_t r = 0; r < kRows; ++r) {
      const auto row = std::span(x).subspan(size_t{r} * kDepth, kDepth);
      for (uint32_t n = 0; n < kColumns; ++n) {
        double sum = bias[n];
        for (uint32_t k = 0; k < kDepth; ++k) sum += double{row[k]} * matrix.row(n)[k];
        const double bound = testing::DotBound(kDepth, testing::Norm(row),
                                               testing::Norm(matrix.row(n)), kEpsilonF16);
        const uint32_t page = r / block_tokens * kHeads + n / kHeadDim;
        const uint32_t at =
            gelu ? r * stride + n
                 : (page * block_tokens + r % block_tokens) * kHeadDim + n % kHeadDim;
        written[at] = true;
        const float value = HalfToFloat(out.as<uint16_t>()[at]);
        const double expected = gelu ? reference::GeluTanh(static_cast<float>(sum)) : sum;
        // The activation's slope is at most 1.13.
        EXPECT_NEAR(
            gelu ? value * kGegluHalfScale : value, expected,
            1.13 * bound + kEpsilonF16 * (std::abs(expected) + bound) + 0x1p-25 * kGegluHalfScale)
            << "row " << r << " column " << n;
      }
    }
    for (size_t i = 0; i < written.size(); ++i) {
      EXPECT_TRUE(written[i] || testing::IsGuard(out.data().subspan(2 * i, 2))) << i;
    }
  }
}

TEST_P(MatrixPathTest, LeavesNoTraceWithoutRows) {
  tuning_.matrix.tiles = {{.columns = 16, .rows = 16, .subgroups = 2, .groups = 8}};
  const TileMatrix matrix(device(), DType::kQ8_0, 64, 512, 5);
  const DeviceArray step = MakeStep(0);
  const DeviceArray output(device(), 64 * sizeof(float));
  Run({MatrixMatmulLaunch(
      tuning_, matrix.tensor, matrix.tensor.shards[0],
      {.count = RowCount(step),
       .x = output.address(),
       .destination = output.address(),
       .out_stride = 64,
       .max_rows = 32,
       .workspace = {output.address(), output.data().size(), output.address()}})});
  EXPECT_TRUE(testing::IsGuard(output.data()));
}

class MatrixFormTest : public MatrixMatmulTest {
 protected:
  void SetUp() override {
    MatrixMatmulTest::SetUp();
    if (IsSkipped()) return;
    const MatrixPath path = tuning().matrix.fragments.path;
    Choose(path == MatrixPath::kNone ? MatrixPath::kQuads : path);
  }
};

TEST_F(MatrixFormTest, EveryFormatMatchesThePlainSumInEitherChunk) {
  for (int format = 1; format <= 9; ++format) {
    for (const uint32_t chunk : {64u, 128u}) {
      Check({.format = static_cast<DType>(format),
             .rows = 5,
             .n_dim = 45,
             .k_dim = 768,
             .tile = {.columns = 16, .rows = 16, .subgroups = 1, .chunk = chunk}});
    }
  }
}

TEST_F(MatrixFormTest, WiderTilesMatchThePlainSum) {
  const MatrixTile tile = {.columns = 32, .rows = 32, .subgroups = 2, .chunk = 64};
  for (const uint32_t n : {1u, 31u, 33u, 63u, 64u, 65u, 131u}) {
    Check({.rows = 37, .n_dim = n, .k_dim = 96, .tile = tile});
  }
  Check({.format = DType::kQ8_0,
         .rows = 21,
         .n_dim = 141,
         .k_dim = 96,
         .tile = {.columns = 64, .rows = 16, .subgroups = 1, .chunk = 64}});
}

// What a device is tuned for, which is too much for an emulation.
TEST_F(MatrixFormTest, TheDevicesOwnTilesMatchThePlainSum) {
  if (tuning().matrix.fragments.path == MatrixPath::kNone) GTEST_SKIP() << "no matrix units";
  for (const MatrixTile& tile : tuning().matrix.tiles) {
    for (const auto format : {DType::kQ4_0, DType::kQ8_0, DType::kF16}) {
      Check({.format = format,
             .rows = tile.rows + 3,
             .n_dim = 2 * tile.columns * tile.subgroups + 5,
             .k_dim = 1280,
             .tile = tile});
    }
  }
}

std::string PathName(const ::testing::TestParamInfo<MatrixPath>& path) {
  constexpr const char* kNames[] = {"none", "shared", "quads", "rows"};
  return kNames[static_cast<int>(path.param)];
}
INSTANTIATE_TEST_SUITE_P(Paths, MatrixPathTest,
                         ::testing::Values(MatrixPath::kShared, MatrixPath::kQuads,
                                           MatrixPath::kRows),
                         PathName);

}  // namespace
}  // namespace tandem::gpu
