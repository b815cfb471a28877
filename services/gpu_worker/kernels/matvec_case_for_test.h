// For the tests of matmuls of few rows: a case, the launch and what it must give.  Expected are
// sums in float64 over the very numbers the kernel reads, so that the bound is that of the float32
// sums alone.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "services/common/reference/ops.h"
#include "services/gpu_worker/kernels/activation_for_test.h"
#include "services/gpu_worker/kernels/matvec_launches.h"
#include "services/gpu_worker/kernels/tile_matrix_for_test.h"

namespace tandem::gpu {

struct MatvecCase {
  DType format = DType::kQ4_0;
  MatvecShape shape;
  uint32_t rows = 1;
  uint32_t n_dim = 64;
  uint32_t k_dim = 256;
  ActivationFormat x_format = ActivationFormat::kInt8;
  float x_scale = 1.0f;  // narrow
  bool geglu = false;
  ActivationFormat out_format = ActivationFormat::kF32;
  std::vector<uint32_t> shard_rows = {};
};

inline std::ostream& operator<<(std::ostream& out, const MatvecCase& c) {
  return out << Traits(c.format).name << " rows " << c.rows << " n " << c.n_dim << " k " << c.k_dim
             << " teams " << c.shape.teams << " split_k " << c.shape.split_k << " tiles "
             << c.shape.tiles << (c.shape.narrow ? " narrow" : "") << " at once " << c.shape.rows
             << " x " << static_cast<int>(c.x_format) << (c.geglu ? " geglu to " : "")
             << (c.geglu ? std::to_string(static_cast<int>(c.out_format)) : "") << " shards "
             << c.shard_rows.size();
}

inline bool IsFloat(DType format) { return format == DType::kF16 || format == DType::kBf16; }

class MatvecTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (!IsSkipped()) tuning_ = tuning();
  }

  struct Output {
    std::vector<std::byte> bytes;
    uint32_t stride = 0;        // columns
    uint64_t split_stride = 0;  // elements
  };

  // Recorded for the power of two not below the rows.
  Output Multiply(const MatvecCase& c, const TileMatrix& matrix, const TestActivations& x) {
    constexpr uint32_t kMore = 32;  // columns nobody may touch
    const uint32_t bucket = std::bit_ceil(c.rows);
    Output out;
    out.stride = (c.geglu ? c.n_dim / 2 : c.n_dim) + kMore;
    out.split_stride = uint64_t{bucket} * out.stride;
    const uint64_t bytes = c.geglu ? ActivationBytes(c.out_format, bucket, out.stride)
                                   : c.shape.split_k * out.split_stride * sizeof(float);
    const DeviceArray step = MakeStep(c.rows), input(device(), x.Bytes(c.x_format)),
                      output(device(), bytes);
    std::vector<Launch> launches;
    for (const DeviceShard& shard : matrix.tensor.shards) {
      launches.push_back(MatvecLaunch(tuning_, matrix.tensor, shard, c.shape,
                                      {.count = RowCount(step),
                                       .x = input.address(),
                                       .x_format = c.x_format,
                                       .x_scale = c.x_scale,
                                       .destination = output.address(),
                                       .out_stride = out.stride,
                                       .split_stride = static_cast<uint32_t>(out.split_stride),
                                       .geglu = c.geglu,
                                       .out_format = c.out_format,
                                       .max_rows = bucket}));
    }
    Run(launches);
    EXPECT_TRUE(output.Intact()) << c;
    out.bytes.assign(output.data().begin(), output.data().end());
    return out;
  }

  // [row, column], partial sums added, and every byte beside them untouched.
  std::vector<float> Sums(const MatvecCase& c, const Output& out) {
    std::vector<float> sums;
    for (uint32_t m = 0; m < std::bit_ceil(c.rows); ++m) {
      std::vector<float> row(c.n_dim, 0.0f);
      for (uint32_t s = 0; s < c.shape.split_k; ++s) {
        const std::byte* at =
            out.bytes.data() + (s * out.split_stride + uint64_t{m} * out.stride) * sizeof(float);
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

  void Check(const MatvecCase& c) {
    SCOPED_TRACE(c);
    const TileMatrix matrix(device(), c.format, c.n_dim, c.k_dim, 1, c.shard_rows);
    const TestActivations x(c.rows, c.k_dim, 2, c.x_format == ActivationFormat::kBf16);
    const Output out = Multiply(c, matrix, x);
    std::vector<float> expected;
    double bound = 0;
    for (uint32_t m = 0; m < c.rows; ++m) {
      const auto row = x.row(m, !IsFloat(c.format) && !c.shape.narrow);
      for (uint32_t n = 0; n < c.n_dim; ++n) {
        expected.push_back(static_cast<float>(c.x_scale * Dot(row, matrix.row(n))));
        bound = std::max(bound, c.x_scale * Bound(c, matrix.row(n), row));
      }
    }
    if (!c.geglu) {
      EXPECT_TRUE(testing::IsNear(Sums(c, out), expected, bound));
    } else {
      CheckGeglu(c, out, expected, bound);
    }
  }

  // Blocks' scales have roundings of their own: three of f32 a term at most.  Narrow matrices round
  // a weight to f16.  K-quants take a minimum off, whose terms are larger than their difference.
  static double Bound(const MatvecCase& c, std::span<const float> w, std::span<const float> x) {
    const bool has_minimum = c.format == DType::kQ4_K || c.format == DType::kQ5_K;
    const double term = c.shape.narrow ? testing::kEpsilonF16 : 3 * testing::kEpsilonF32;
    return (has_minimum ? 4 : 1) *
           testing::DotBound(c.k_dim, testing::Norm(w), testing::Norm(x), term);
  }

  void CheckGeglu(const MatvecCase& c, const Output& out, std::span<const float> products,
                  double bound) {
    const uint32_t columns = c.n_dim / 2;
    const bool half =
        c.out_format == ActivationFormat::kF16 || c.out_format == ActivationFormat::kFragments;
    const float scale = half ? kGegluHalfScale : 1.0f;
    for (uint32_t m = 0; m < c.rows; ++m) {
      std::vector<float> activated(columns), steps;
      double highest = 0;
      for (uint32_t i = 0; i < columns; ++i) {
        const float gate = products[size_t{m} * c.n_dim + 2 * i];
        const float up = products[size_t{m} * c.n_dim + 2 * i + 1];
        activated[i] = reference::GeluTanh(gate) * up / scale;
        highest = std::max<double>({highest, std::abs(gate), std::abs(up)});
      }
      const std::byte* row = out.bytes.data() + ActivationRowOffset(c.out_format, out.stride, m);
      const auto actual = ReadActivations(row, c.out_format, columns, &steps);
      // As in the plain kernel's test; then half a step of the format.
      const double error = 2.3 * bound * highest / scale;
      double relative = (8 + 4 * highest) * testing::kEpsilonF32;
      if (half) relative += testing::kEpsilonF16;
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

  Tuning tuning_;
};

}  // namespace tandem::gpu
