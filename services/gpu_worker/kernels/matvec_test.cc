// Products of few rows against sums in float64 over the very numbers the kernel reads, so that the
// bound is that of the float32 sums alone.
#include "services/gpu_worker/kernels/matvec_launches.h"

#include "services/common/reference/ops.h"
#include "services/gpu_worker/kernels/activation_for_test.h"
#include "services/gpu_worker/kernels/product.h"
#include "services/gpu_worker/kernels/tile_matrix_for_test.h"

namespace tandem::gpu {
namespace {

struct Case {
  TileFormat format = TileFormat::kQ4_0;
  MatvecShape shape;
  uint32_t rows = 1;
  uint32_t n_dim = 64;
  uint32_t k_dim = 256;
  ActivationFormat x_format = ActivationFormat::kInt8;
  bool geglu = false;
  ActivationFormat out_format = ActivationFormat::kF32;
  std::vector<uint32_t> shard_rows = {};
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << TileFormatName(c.format) << " rows " << c.rows << " n " << c.n_dim << " k "
             << c.k_dim << " teams " << c.shape.teams << " slices " << c.shape.slices << " tiles "
             << c.shape.tiles << " at once " << c.shape.rows << " x "
             << static_cast<int>(c.x_format) << (c.geglu ? " geglu to " : "")
             << (c.geglu ? std::to_string(static_cast<int>(c.out_format)) : "") << " shards "
             << c.shard_rows.size();
}

bool IsFloat(TileFormat format) {
  return format == TileFormat::kF16 || format == TileFormat::kBf16;
}

class MatvecTest : public KernelTest {
 protected:
  struct Output {
    std::vector<std::byte> bytes;
    uint32_t stride = 0;        // columns
    uint64_t slice_stride = 0;  // elements
  };

  // Recorded for the power of two not below the rows.
  Output Product(const Case& c, const TileMatrix& matrix, const TestActivations& x) {
    constexpr uint32_t kMore = 32;  // columns nobody may touch
    const uint32_t bucket = std::bit_ceil(c.rows);
    Output out;
    out.stride = (c.geglu ? c.n_dim / 2 : c.n_dim) + kMore;
    out.slice_stride = uint64_t{bucket} * out.stride;
    const uint64_t bytes = c.geglu ? bucket * ActivationRowBytes(c.out_format, out.stride)
                                   : c.shape.slices * out.slice_stride * sizeof(float);
    const DeviceArray step = MakeStep(c.rows), input(device(), x.Bytes(c.x_format)),
                      output(device(), bytes);
    std::vector<Launch> launches;
    for (const DeviceShard& shard : matrix.tensor.shards) {
      launches.push_back(MatvecLaunch(tuning(), matrix.tensor, shard, c.shape,
                                      {.count = RowCount(step),
                                       .x = input.address(),
                                       .x_format = c.x_format,
                                       .destination = output.address(),
                                       .out_stride = out.stride,
                                       .slice_stride = static_cast<uint32_t>(out.slice_stride),
                                       .geglu = c.geglu,
                                       .out_format = c.out_format,
                                       .max_rows = bucket}));
    }
    Run(launches);
    EXPECT_TRUE(output.Intact()) << c;
    out.bytes.assign(output.data().begin(), output.data().end());
    return out;
  }

  // [row, column], slices added, and every byte beside them untouched.
  std::vector<float> Sums(const Case& c, const Output& out) {
    std::vector<float> sums;
    for (uint32_t m = 0; m < std::bit_ceil(c.rows); ++m) {
      std::vector<float> row(c.n_dim, 0.0f);
      for (uint32_t s = 0; s < c.shape.slices; ++s) {
        const std::byte* at =
            out.bytes.data() + (s * out.slice_stride + uint64_t{m} * out.stride) * sizeof(float);
        const uint32_t written = m < c.rows ? c.n_dim : 0;
        EXPECT_TRUE(testing::IsGuard({at + written * 4, (out.stride - written) * 4}))
            << c << " row " << m;
        for (uint32_t n = 0; n < written; ++n) {
          float value = 0;
          std::memcpy(&value, at + n * 4, 4);
          row[n] += value;
        }
      }
      if (m < c.rows) sums.insert(sums.end(), row.begin(), row.end());
    }
    return sums;
  }

  static double Dot(std::span<const float> a, std::span<const float> b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
    return sum;
  }

  void Check(const Case& c) {
    SCOPED_TRACE(c);
    const TileMatrix matrix(device(), c.format, c.n_dim, c.k_dim, 1, c.shard_rows);
    const TestActivations x(c.rows, c.k_dim, 2);
    const Output out = Product(c, matrix, x);
    std::vector<float> expected;
    double bound = 0;
    for (uint32_t m = 0; m < c.rows; ++m) {
      const auto row = x.row(m, !IsFloat(c.format));
      for (uint32_t n = 0; n < c.n_dim; ++n) {
        expected.push_back(static_cast<float>(Dot(row, matrix.row(n))));
        bound = std::max(bound, Bound(c, matrix.row(n), row));
      }
    }
    if (!c.geglu) {
      EXPECT_TRUE(testing::IsNear(Sums(c, out), expected, bound));
    } else {
      CheckGeglu(c, out, expected, bound);
    }
  }

  // Blocks' scales have roundings of their own: three of f32 a term at most.  K-quants take a
  // minimum off, whose terms are larger than their difference.
  static double Bound(const Case& c, std::span<const float> w, std::span<const float> x) {
    const bool has_minimum = c.format == TileFormat::kQ4_K || c.format == TileFormat::kQ5_K;
    return (has_minimum ? 4 : 1) *
           testing::DotBound(c.k_dim, testing::Norm(w), testing::Norm(x), 3 * testing::kEpsilonF32);
  }

  void CheckGeglu(const Case& c, const Output& out, std::span<const float> products, double bound) {
    const uint32_t columns = c.n_dim / 2;
    const float scale = c.out_format == ActivationFormat::kF16 ? kGegluHalfScale : 1.0f;
    for (uint32_t m = 0; m < c.rows; ++m) {
      std::vector<float> activated(columns), steps;
      double highest = 0;
      for (uint32_t i = 0; i < columns; ++i) {
        const float gate = products[size_t{m} * c.n_dim + 2 * i];
        const float up = products[size_t{m} * c.n_dim + 2 * i + 1];
        activated[i] = reference::GeluTanh(gate) * up / scale;
        highest = std::max<double>({highest, std::abs(gate), std::abs(up)});
      }
      const std::byte* row = out.bytes.data() + m * ActivationRowBytes(c.out_format, out.stride);
      const auto actual = ReadActivations(row, c.out_format, columns, &steps);
      // As in the plain kernel's test; then half a step of the format.
      const double error = 2.3 * bound * highest / scale;
      double relative = (8 + 4 * highest) * testing::kEpsilonF32;
      if (c.out_format == ActivationFormat::kF16) relative += testing::kEpsilonF16;
      for (uint32_t i = 0; i < columns; i += 32) {
        const double half_step =
            c.out_format == ActivationFormat::kInt8 ? 0.5001 * steps[i / 32] : 0x1p-25;
        EXPECT_TRUE(testing::IsNear(std::span(actual).subspan(i, std::min(32u, columns - i)),
                                    std::span(activated).subspan(i, std::min(32u, columns - i)),
                                    error + half_step, relative))
            << c << " row " << m << " from column " << i;
      }
    }
  }
};

class MatvecFormatTest : public MatvecTest, public ::testing::WithParamInterface<TileFormat> {
 protected:
  // Columns in blocks of 32 or 256, a ragged number of units.
  uint32_t Columns(uint32_t blocks) const {
    switch (GetParam()) {
      case TileFormat::kQ6_K:
      case TileFormat::kQ4_K:
      case TileFormat::kQ5_K:
        return (blocks + 7) / 8 * 256;
      default:
        return blocks * 32;
    }
  }
  ActivationFormat Input() const { return MatvecInput(static_cast<DType>(GetParam())); }
};

TEST_P(MatvecFormatTest, MatchesSumsInFloat64AtOddShapes) {
  const TileFormat format = GetParam();
  for (const uint32_t n : {1u, 31u, 33u, 100u}) {
    Check({.format = format,
           .shape = {.teams = 3, .slices = 2},
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
  const TileFormat format = GetParam();
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
                         ::testing::Values(TileFormat::kF16, TileFormat::kBf16, TileFormat::kQ8_0,
                                           TileFormat::kQ4_0, TileFormat::kQ6_K, TileFormat::kQ4_K,
                                           TileFormat::kQ5_K, TileFormat::kQ5_0,
                                           TileFormat::kIq4Nl),
                         [](const auto& test) { return std::string(TileFormatName(test.param)); });

TEST_F(MatvecTest, TakesEveryNumberOfRows) {
  for (const uint32_t rows : {1u, 2u, 4u, 5u, 8u, 11u, 16u}) {
    const uint32_t at_once = std::bit_ceil(rows);
    Check({.shape = {.teams = 2, .slices = 2, .tiles = at_once >= 4 ? 2u : 1u, .rows = at_once},
           .rows = rows,
           .n_dim = 70,
           .k_dim = 800});
  }
}

TEST_F(MatvecTest, QuantisesFloatsOnItsWay) {
  for (const ActivationFormat x : {ActivationFormat::kF32, ActivationFormat::kF16}) {
    Check({.shape = {.teams = 3, .rows = 2}, .rows = 3, .n_dim = 40, .k_dim = 416, .x_format = x});
    Check({.format = TileFormat::kQ4_K, .n_dim = 40, .k_dim = 512, .x_format = x});
    Check({.format = TileFormat::kBf16, .rows = 2, .n_dim = 40, .k_dim = 416, .x_format = x});
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
  const TileMatrix matrix(device(), TileFormat::kQ4_0, kOut, kColumns, 3);
  const TestActivations x(7, kColumns, 4);
  Case c{.shape = {.teams = 3, .slices = 2, .tiles = 2, .rows = 8},
         .rows = 7,
         .n_dim = kOut,
         .k_dim = kColumns};
  const std::vector<float> together = Sums(c, Product(c, matrix, x));
  for (const auto& [rows, at_once, tiles] :
       {std::tuple{1u, 1u, 1u}, {2u, 2u, 1u}, {3u, 1u, 4u}, {7u, 4u, 2u}}) {
    c.rows = rows;
    c.shape.rows = at_once;
    c.shape.tiles = tiles;
    c.shape.parts = at_once;
    const std::vector<float> alone = Sums(c, Product(c, matrix, x));
    ASSERT_EQ(0, std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float))) << c;
  }
}

TEST_F(MatvecTest, RunsOverNoRowsWithoutATrace) {
  const TileMatrix matrix(device(), TileFormat::kQ8_0, 64, 64, 5);
  const DeviceArray step = MakeStep(0), output(device(), 64 * sizeof(float));
  Run({MatvecLaunch(tuning(), matrix.tensor, matrix.tensor.shards[0], {.rows = 2},
                    {.count = RowCount(step),
                     .x = output.address(),
                     .destination = output.address(),
                     .out_stride = 64,
                     .max_rows = 8})});
  EXPECT_TRUE(testing::IsGuard(output.data()));
}

TEST_F(MatvecTest, ShapesDivideKAlikeForAnyNumberOfRows) {
  Tuning fast = tuning();
  fast.matvec_full_teams = 1792;
  for (const auto& [rows, cols] : {std::pair{8192u, 5376u},
                                   {5376u, 4096u},
                                   {5376u, 21504u},
                                   {1536u, 1152u},
                                   {640u, 640u},
                                   {262144u, 640u}}) {
    const DeviceTensor weights = {DType::kQ4_0, rows, cols, {}};
    const MatvecShape one = ChooseMatvecShape(fast, weights, false, true, 1);
    EXPECT_LE(one.slices, kMaxSlices);
    EXPECT_LE(one.slices * one.teams, (cols + 255) / 256) << "a team with nothing to do";
    for (const uint32_t bucket : {2u, 4u, 8u, 16u}) {
      const MatvecShape more = ChooseMatvecShape(fast, weights, false, true, bucket);
      EXPECT_EQ(more.slices, one.slices);
      EXPECT_EQ(more.teams, one.teams);
      EXPECT_LE(more.rows, bucket);
    }
    EXPECT_EQ(ChooseMatvecShape(fast, weights, false, false, 1).slices, 1u);
    EXPECT_EQ(ChooseMatvecShape(fast, weights, true, true, 1).slices, 1u);
  }
}

TEST_F(MatvecTest, ProductsGoToTheKernelForTheirRows) {
  Tuning fast = tuning();
  fast.matvec_max_rows = 16;
  const DeviceTensor q4 = {DType::kQ4_0, 8192, 5376, {}}, f32 = {DType::kF32, 8192, 5376, {}};
  const DeviceTensor odd = {DType::kQ4_0, 8192, 5376, {{.first_row = 96}}};
  const auto kernel = [&fast](const DeviceTensor& weights, uint32_t rows) {
    return ChooseProduct(fast, weights, false, true, rows).kernel;
  };
  fast.matrix.pattern.path = MatrixPath::kNone;
  EXPECT_EQ(kernel(q4, 16), ProductKernel::kMatvec);
  EXPECT_EQ(kernel(q4, 32), ProductKernel::kPlain);
  fast.matrix.pattern.path = MatrixPath::kShared;
  fast.matrix.min_rows = 9;
  EXPECT_EQ(kernel(q4, 8), ProductKernel::kMatvec);
  EXPECT_EQ(kernel(q4, 16), ProductKernel::kMatrix);
  EXPECT_EQ(kernel(f32, 1), ProductKernel::kPlain);
  EXPECT_EQ(kernel(f32, 64), ProductKernel::kPlain);

  // Between GeGLU and down: what both know, float32 where they have nothing better in common.
  const auto between = [&fast](const DeviceTensor& gate_up, const DeviceTensor& down,
                               uint32_t rows) {
    gpu::Product reader = ChooseProduct(fast, down, false, true, rows);
    MatchGeglu(ChooseProduct(fast, gate_up, true, false, rows), gate_up, reader);
    return std::pair(reader.kernel, reader.input);
  };
  EXPECT_EQ(between(q4, q4, 1), std::pair(ProductKernel::kMatvec, ActivationFormat::kInt8));
  EXPECT_EQ(between(odd, q4, 1), std::pair(ProductKernel::kMatvec, ActivationFormat::kF32));
  EXPECT_EQ(between(f32, q4, 1), std::pair(ProductKernel::kMatvec, ActivationFormat::kF32));
  EXPECT_EQ(between(q4, f32, 1), std::pair(ProductKernel::kPlain, ActivationFormat::kF32));
  EXPECT_EQ(between(q4, q4, 32), std::pair(ProductKernel::kMatrix, ActivationFormat::kF16));
  EXPECT_EQ(between(f32, q4, 32), std::pair(ProductKernel::kPlain, ActivationFormat::kF32));
}

}  // namespace
}  // namespace tandem::gpu
