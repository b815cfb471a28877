// The vision encoder's own kernels against the reference.
#include <algorithm>
#include <cmath>

#include "services/common/reference/ops.h"
#include "services/common/reference/vision_encoder.h"
#include "services/common/testing/compare.h"
#include "services/gpu_worker/kernels/activation_for_test.h"
#include "services/gpu_worker/kernels/kernel_test_device.h"
#include "services/gpu_worker/kernels/vision_launches.h"

namespace tandem::gpu {
namespace {

using testing::FloatsToHalves;
using testing::kEpsilonF16;
using testing::kEpsilonF32;

constexpr float kEpsilon = 1e-6f;
constexpr auto kFormats = {ActivationFormat::kF32, ActivationFormat::kF16};

// Every |actual - expected| within its bound and, in float16, its rounding: half a step, of the
// smallest numbers 2^-24.  `scale`: of float16.
void CheckEach(const DeviceArray& array, ActivationFormat format, std::span<const float> expected,
               std::span<const double> bounds, float scale = 1.0f) {
  const bool halves = format == ActivationFormat::kF16;
  const auto count = static_cast<uint32_t>(expected.size());
  const auto actual = ReadActivations(array.data().data(), format, count);
  for (size_t i = 0; i < count; ++i) {
    const double value = double{actual[i]} * (halves ? scale : 1.0f);
    double bound = bounds[i];
    if (halves) bound += kEpsilonF16 * (std::abs(expected[i]) + bound) + 0x1p-25 * scale;
    ASSERT_LE(std::abs(value - expected[i]), bound)
        << "element " << i << ": " << value << ", expected " << expected[i] << ", format "
        << static_cast<int>(format);
  }
}

// Sum of n numbers, a root, a quotient and the products and sums around them.
double NormRelativeBound(size_t n) { return (std::sqrt(n) + 16) * kEpsilonF32; }

struct PatchCase {
  uint32_t image_size, patch_size, stride;
};
class CutPatchesTest : public KernelTest, public ::testing::WithParamInterface<PatchCase> {};

// Copies, and float16 rounded to nearest: the same bits.
TEST_P(CutPatchesTest, MovesEachPixelToItsPatchAndFillsRowsWithZeros) {
  const auto [side, patch, stride] = GetParam();
  const uint32_t patches = side / patch;
  const auto pixels = RandomFloats(size_t{3} * side * side, 1);
  std::vector<float> expected(size_t{patches} * patches * stride);
  for (uint32_t c = 0; c < 3; ++c) {
    for (uint32_t y = 0; y < side; ++y) {
      for (uint32_t x = 0; x < side; ++x) {
        const size_t row = size_t{y / patch} * patches + x / patch;
        expected[row * stride + (c * patch + y % patch) * patch + x % patch] =
            pixels[(size_t{c} * side + y) * side + x];
      }
    }
  }
  for (const auto format : kFormats) {
    const DeviceArray in(device(), pixels),
        out(device(), patches * patches * ActivationRowBytes(format, stride));
    Run({CutPatchesLaunch(tuning(), {.pixels = in.address(),
                                     .destination = out.address(),
                                     .image_size = side,
                                     .patch_size = patch,
                                     .stride = stride,
                                     .format = format})});
    EXPECT_TRUE(out.Intact());
    if (format == ActivationFormat::kF32) {
      EXPECT_EQ(out.floats(), expected);
    } else {
      EXPECT_TRUE(std::ranges::equal(out.as<uint16_t>(), FloatsToHalves(expected)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CutPatchesTest,
                         ::testing::Values(PatchCase{14, 14, 588}, PatchCase{70, 14, 608},
                                           PatchCase{3, 3, 28}, PatchCase{21, 3, 32},
                                           PatchCase{5, 1, 4}));

struct LayerNormCase {
  uint32_t rows, cols;
  float mean = 0;  // of the rows, their deviation being about 1
};
class AddLayerNormTest : public KernelTest, public ::testing::WithParamInterface<LayerNormCase> {
 protected:
  // Of a row and its norm, n = cols:
  //
  //   the mean is off by n^1/2 eps mean(|x|), and each element with it;
  //   the sum of squares, the root, the quotient and the products add (n^1/2 + 16) eps relatively;
  //   the addition of the bias rounds once on each side.
  static void AppendExpected(std::span<const float> x, std::span<const float> weight,
                             std::span<const float> bias, std::vector<float>& expected,
                             std::vector<double>& bounds) {
    std::vector<float> normed(x.size());
    reference::LayerNorm(x, weight, bias, kEpsilon, normed);
    const auto n = static_cast<double>(x.size());
    double mean = 0, magnitude = 0, variance = 0;
    for (const float value : x) mean += value / n;
    for (const float value : x) magnitude += std::abs(value) / n;
    for (const float value : x) variance += (value - mean) * (value - mean) / n;
    const double factor = 1 / std::sqrt(variance + kEpsilon);
    for (size_t i = 0; i < x.size(); ++i) {
      const double size = (magnitude + std::abs(x[i] - mean)) * factor * std::abs(weight[i]);
      bounds.push_back(NormRelativeBound(x.size()) * size + 2 * kEpsilonF32 * std::abs(normed[i]));
    }
    expected.insert(expected.end(), normed.begin(), normed.end());
  }
};

TEST_P(AddLayerNormTest, UpdatesTheResidualAndNormsIt) {
  const auto [rows, cols, mean] = GetParam();
  const size_t count = size_t{rows} * cols;
  const auto source = RandomFloats(count, 1), bias = RandomFloats(cols, 2),
             weight = RandomFloats(cols, 3), norm_bias = RandomFloats(cols, 4);
  auto residual = RandomFloats(count, 5);
  for (float& value : residual) value += mean;
  for (const bool adds : {true, false}) {
    std::vector<float> updated = residual, expected;
    for (size_t i = 0; adds && i < count; ++i) updated[i] += source[i] + bias[i % cols];
    std::vector<double> bounds;
    for (size_t at = 0; at < count; at += cols) {
      AppendExpected(std::span(updated).subspan(at, cols), weight, norm_bias, expected, bounds);
    }
    for (const bool in_place : {true, false}) {
      for (const auto format : kFormats) {
        const DeviceArray in(device(), source), b(device(), bias), res(device(), residual),
            other(device(), count * 4), w(device(), weight), nb(device(), norm_bias),
            out(device(), rows * ActivationRowBytes(format, cols));
        const DeviceArray& to = in_place ? res : other;
        Run({AddLayerNormLaunch(tuning(), {.source = adds ? in.address() : 0,
                                           .bias = b.address(),
                                           .residual = res.address(),
                                           .updated = to.address(),
                                           .weight = w.address(),
                                           .norm_bias = nb.address(),
                                           .normed = out.address(),
                                           .cols = cols,
                                           .rows = rows,
                                           .epsilon = kEpsilon,
                                           .format = format})});
        EXPECT_TRUE(out.Intact() && res.Intact() && other.Intact());
        // The kernel adds in this order: the same bits.
        const bool writes_other = adds && !in_place;
        EXPECT_EQ(res.floats(), writes_other ? residual : updated);
        EXPECT_TRUE(writes_other ? other.floats() == updated
                                 : bool{testing::IsGuard(other.data())});
        CheckEach(out, format, expected, bounds);
      }
    }
  }
}

// A mean of 1000 deviations: mean(x^2) - mean(x)^2 would lose the variance.
INSTANTIATE_TEST_SUITE_P(Shapes, AddLayerNormTest,
                         ::testing::Values(LayerNormCase{1, 32}, LayerNormCase{7, 36},
                                           LayerNormCase{256, 32}, LayerNormCase{7, 192},
                                           LayerNormCase{5, 1152}, LayerNormCase{256, 1152},
                                           LayerNormCase{3, 192, 1000},
                                           LayerNormCase{3, 1152, 1000}));

struct HeadsCase {
  uint32_t rows, num_heads, head_dim, block_tokens;
};
class SplitHeadsTest : public KernelTest, public ::testing::WithParamInterface<HeadsCase> {};

// One addition, rounded to float32 and then to float16: the same bits.
TEST_P(SplitHeadsTest, PutsRowsAndPagesWhereAttentionReadsThem) {
  const auto [rows, num_heads, head_dim, block_tokens] = GetParam();
  const uint32_t dim = num_heads * head_dim, blocks = DivideUp(rows, block_tokens);
  const auto sums = RandomFloats(size_t{rows} * 3 * dim, 1), q_bias = RandomFloats(dim, 2),
             k_bias = RandomFloats(dim, 3), v_bias = RandomFloats(dim, 4);
  const DeviceArray in(device(), sums), qb(device(), q_bias), kb(device(), k_bias),
      vb(device(), v_bias), q(device(), size_t{rows} * dim * 2),
      k(device(), size_t{blocks} * block_tokens * dim * 2),
      v(device(), size_t{blocks} * block_tokens * dim * 2);
  // Vectors that no row fills keep their guard values.
  std::vector<uint16_t> wanted_q(q.as<uint16_t>().begin(), q.as<uint16_t>().end()),
      wanted_k(k.as<uint16_t>().begin(), k.as<uint16_t>().end()), wanted_v = wanted_k;
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t i = 0; i < dim; ++i) {
      const float* of_row = &sums[size_t{row} * 3 * dim + i];
      const auto halves = FloatsToHalves(std::vector<float>{
          of_row[0] + q_bias[i], of_row[dim] + k_bias[i], of_row[size_t{2} * dim] + v_bias[i]});
      const size_t page = size_t{row / block_tokens} * num_heads + i / head_dim;
      const size_t at = (page * block_tokens + row % block_tokens) * head_dim + i % head_dim;
      wanted_q[size_t{row} * dim + i] = halves[0];
      wanted_k[at] = halves[1];
      wanted_v[at] = halves[2];
    }
  }
  Run({SplitHeadsLaunch(tuning(), {.sums = in.address(),
                                   .q_bias = qb.address(),
                                   .k_bias = kb.address(),
                                   .v_bias = vb.address(),
                                   .q = q.address(),
                                   .k_cache = k.address(),
                                   .v_cache = v.address(),
                                   .num_heads = num_heads,
                                   .head_dim = head_dim,
                                   .block_tokens = block_tokens,
                                   .rows = rows})});
  EXPECT_TRUE(q.Intact() && k.Intact() && v.Intact());
  EXPECT_TRUE(std::ranges::equal(q.as<uint16_t>(), wanted_q));
  EXPECT_TRUE(std::ranges::equal(k.as<uint16_t>(), wanted_k));
  EXPECT_TRUE(std::ranges::equal(v.as<uint16_t>(), wanted_v));
}

INSTANTIATE_TEST_SUITE_P(Shapes, SplitHeadsTest,
                         ::testing::Values(HeadsCase{1, 1, 8, 16}, HeadsCase{7, 3, 8, 3},
                                           HeadsCase{33, 2, 64, 16}, HeadsCase{256, 3, 64, 32},
                                           HeadsCase{50, 16, 72, 16}));

struct GeluCase {
  uint32_t rows, cols, stride;
};
class BiasGeluTest : public KernelTest, public ::testing::WithParamInterface<GeluCase> {};

TEST_P(BiasGeluTest, ActivatesAndFillsRowsWithZeros) {
  const auto [rows, cols, stride] = GetParam();
  auto source = RandomFloats(size_t{rows} * cols, 1, 4.0f);
  const auto bias = RandomFloats(cols, 2);
  constexpr float kFar[] = {0.0f, -3e4f, 3e4f, -30.0f, 30.0f, -9.0f, 9.0f};
  std::ranges::copy(kFar, source.begin());
  // gelu(x) = x / (1 + e), e = exp(-2 u(x)).  Vulkan lets exp be off by 3 + 2 |2u| units in the last
  // place, and u is off by 4 eps |u|: e by (6 + 16 |u|) eps, relatively.  The quotient takes that
  // times e / (1 + e)^2, which is below 1/4 and 0.12 / |u|, and is off by 6 eps itself: 9 eps |x|.
  // The reference adds 5 eps |x|.  Columns from `cols` on have a bound of 0: half of float16's
  // smallest number lets only 0 through.
  std::vector<float> expected(size_t{rows} * stride);
  std::vector<double> bounds(expected.size());
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t i = 0; i < cols; ++i) {
      const float x = source[size_t{row} * cols + i] + bias[i];
      expected[size_t{row} * stride + i] = reference::GeluTanh(x);
      bounds[size_t{row} * stride + i] = 14 * kEpsilonF32 * std::abs(x);
    }
  }
  for (const auto format : kFormats) {
    const DeviceArray in(device(), source), b(device(), bias),
        out(device(), rows * ActivationRowBytes(format, stride));
    Run({BiasGeluLaunch(tuning(), {.source = in.address(),
                                   .bias = b.address(),
                                   .destination = out.address(),
                                   .cols = cols,
                                   .stride = stride,
                                   .rows = rows,
                                   .format = format})});
    EXPECT_TRUE(out.Intact());
    CheckEach(out, format, expected, bounds, kGegluHalfScale);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, BiasGeluTest,
                         ::testing::Values(GeluCase{1, 20, 20}, GeluCase{7, 20, 32},
                                           GeluCase{256, 20, 24}, GeluCase{3, 4304, 4304},
                                           GeluCase{2, 4304, 4320}));

struct PoolCase {
  uint32_t side, pool, cols;
};
class PoolPatchesTest : public KernelTest, public ::testing::WithParamInterface<PoolCase> {};

TEST_P(PoolPatchesTest, AveragesSquaresAndNormsThem) {
  const auto [side, pool, cols] = GetParam();
  const auto source = RandomFloats(size_t{side} * side * cols, 1, 3.0f),
             weight = RandomFloats(cols, 2);
  // The kernel adds rows in the reference's order, so the means are the same.
  std::vector<float> expected = reference::AveragePool(source, side, pool, cols);
  std::vector<double> bounds;
  for (size_t at = 0; at < expected.size(); at += cols) {
    const auto row = std::span(expected).subspan(at, cols);
    reference::RmsNorm(row, weight, kEpsilon, row);
  }
  for (const float value : expected) bounds.push_back(NormRelativeBound(cols) * std::abs(value));
  for (const auto format : kFormats) {
    const uint32_t squares = side / pool;
    const DeviceArray in(device(), source), w(device(), weight),
        out(device(), squares * squares * ActivationRowBytes(format, cols));
    Run({PoolPatchesLaunch(tuning(), {.source = in.address(),
                                      .weight = w.address(),
                                      .destination = out.address(),
                                      .side = side,
                                      .pool = pool,
                                      .cols = cols,
                                      .epsilon = kEpsilon,
                                      .format = format})});
    EXPECT_TRUE(out.Intact());
    CheckEach(out, format, expected, bounds);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, PoolPatchesTest,
                         ::testing::Values(PoolCase{1, 1, 32}, PoolCase{4, 4, 36},
                                           PoolCase{6, 3, 192}, PoolCase{14, 2, 32},
                                           PoolCase{64, 4, 32}, PoolCase{12, 4, 1152}));

}  // namespace
}  // namespace tandem::gpu
