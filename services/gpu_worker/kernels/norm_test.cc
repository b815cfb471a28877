// Norms, residual and rotation against the reference.
#include <bit>
#include <cmath>

#include "services/common/base/half.h"
#include "services/common/reference/ops.h"
#include "services/common/testing/compare.h"
#include "services/gpu_worker/kernels/activation_for_test.h"
#include "services/gpu_worker/kernels/attention_launches.h"
#include "services/gpu_worker/kernels/kernel_test_device.h"
#include "services/gpu_worker/kernels/launches.h"

namespace tandem::gpu {
namespace {

constexpr float kEpsilon = 1e-6f;
// Sum of n squares, a root, a quotient and two products.
double NormRelativeBound(size_t n) { return (std::sqrt(n) + 16) * testing::kEpsilonF32; }

class NormTest : public KernelTest, public ::testing::WithParamInterface<uint32_t> {
 protected:
  uint32_t cols() const { return GetParam(); }
  std::vector<float> Normed(std::span<const float> x, std::span<const float> weight) const {
    std::vector<float> out(x.size());
    for (size_t at = 0; at < x.size(); at += cols()) {
      reference::RmsNorm(x.subspan(at, cols()), weight, kEpsilon,
                         std::span(out).subspan(at, cols()));
    }
    return out;
  }
  // Half a step of the format about rows of `expected`.
  void CheckActivations(const DeviceArray& out, ActivationFormat format,
                        std::span<const float> expected) const {
    const bool half = format == ActivationFormat::kF16 || format == ActivationFormat::kFragments;
    for (size_t row = 0; row < expected.size() / cols(); ++row) {
      std::vector<float> steps;
      const auto actual = ReadActivations(
          out.data().data() + ActivationRowOffset(format, cols(), row), format, cols(), &steps);
      double relative = NormRelativeBound(cols());
      if (half) relative += testing::kEpsilonF16;
      for (uint32_t i = 0; i < cols(); i += 32) {
        const uint32_t n = std::min(32u, cols() - i);
        const auto wanted = expected.subspan(row * cols() + i, n);
        double bound = half ? 0x1p-25 : 0;
        if (format == ActivationFormat::kInt8) {
          bound = 0.5001 * steps[i / 32];
          const float highest = std::ranges::max(wanted, {}, [](float f) { return std::abs(f); });
          EXPECT_NEAR(127 * steps[i / 32], std::abs(highest), std::abs(highest) * 2 * relative);
        }
        EXPECT_TRUE(testing::IsNear(std::span(actual).subspan(i, n), wanted, bound, relative))
            << "format " << static_cast<int>(format) << " row " << row << " from " << i;
      }
    }
  }
};

TEST_P(NormTest, RmsNormMatchesTheReference) {
  constexpr uint32_t kRows = 5;
  const auto x = RandomFloats(kRows * cols(), 1, 30.0f), weight = RandomFloats(cols(), 2);
  const DeviceArray step = MakeStep(kRows), in(device(), x), w(device(), weight),
                    out(device(), x.size() * 4);
  Run({RmsNormLaunch(tuning(),
                     {.step = step.address(),
                      .source = in.address(),
                      .weight = w.address(),
                      .destination = out.address(),
                      .cols = cols(),
                      .epsilon = kEpsilon},
                     false, 8)});
  EXPECT_TRUE(out.Intact());
  EXPECT_TRUE(testing::IsNear(out.floats(), Normed(x, weight), 0, NormRelativeBound(cols())));
}

TEST_P(NormTest, RmsNormGathersTheRowsOfTheOutputs) {
  constexpr uint32_t kRows = 6;
  const auto x = RandomFloats(kRows * cols(), 3), weight = RandomFloats(cols(), 4);
  const std::vector<OutputEntry> outputs = {{5}, {0}, {5}, {2}};
  const DeviceArray step = MakeStep(kRows, outputs), in(device(), x), w(device(), weight),
                    out(device(), size_t{3} * cols() * 4);
  Run({RmsNormLaunch(tuning(),
                     {.step = step.address(),
                      .source = in.address(),
                      .weight = w.address(),
                      .destination = out.address(),
                      .cols = cols(),
                      .epsilon = kEpsilon,
                      .first_row = 1},
                     true, 4)});
  EXPECT_TRUE(out.Intact());
  const std::vector<float> all = Normed(x, weight);
  std::vector<float> expected;
  for (size_t o = 1; o < outputs.size(); ++o) {
    const auto row = all.begin() + size_t{outputs[o].row} * cols();
    expected.insert(expected.end(), row, row + cols());
  }
  EXPECT_TRUE(testing::IsNear(out.floats(), expected, 0, NormRelativeBound(cols())));
}

TEST_P(NormTest, AddNormUpdatesTheResidualAndNormsIt) {
  constexpr uint32_t kRows = 5;
  const auto x = RandomFloats(kRows * cols(), 5, 9.0f), weight = RandomFloats(cols(), 6),
             residual = RandomFloats(kRows * cols(), 7), next = RandomFloats(cols(), 8);
  std::vector<float> sum = Normed(x, weight);
  double largest = 0;
  for (size_t i = 0; i < sum.size(); ++i) {
    largest = std::max<double>(largest, std::abs(sum[i]));
    sum[i] += residual[i];
  }
  for (const bool with_next : {true, false}) {
    const DeviceArray step = MakeStep(kRows), in(device(), x), w(device(), weight),
                      res(device(), residual), w2(device(), next), out(device(), x.size() * 4);
    const AddNormPush push = {.step = step.address(),
                              .source = in.address(),
                              .weight = w.address(),
                              .residual = res.address(),
                              .next_weight = with_next ? w2.address() : 0,
                              .normed = out.address(),
                              .cols = cols(),
                              .epsilon = kEpsilon,
                              .updated = res.address()};
    Run({AddNormLaunch(ByAddress(), push, 8)});
    const std::vector<float> by_address = res.floats(), normed = out.floats();
    std::ranges::copy(residual, res.as<float>().begin());
    std::ranges::fill(out.data(), testing::kGuardByte);
    Run({AddNormLaunch(tuning(), push, 8)});
    EXPECT_TRUE(res.Intact() && out.Intact());
    EXPECT_EQ(0, std::memcmp(res.data().data(), by_address.data(), res.data().size()));
    EXPECT_EQ(0, std::memcmp(out.data().data(), normed.data(), out.data().size()));
    const double bound = largest * NormRelativeBound(cols());
    EXPECT_TRUE(testing::IsNear(res.floats(), sum, bound, 2 * testing::kEpsilonF32));
    if (with_next) {
      EXPECT_TRUE(
          testing::IsNear(out.floats(), Normed(res.floats(), next), 0, NormRelativeBound(cols())));
    } else {
      EXPECT_TRUE(testing::IsGuard(out.data()));
    }
  }
}

// The wide kernel, over the partial sums of split-K, in workgroups that hold one to eight pieces of
// a row.
TEST_P(NormTest, WideAddNormAddsPartialSumsAndWritesEveryFormat) {
  constexpr uint32_t kRows = 3;
  Tuning wide = tuning();
  wide.wide_norm_threads = cols() > 4000 ? 256 : 64;
  const auto weight = RandomFloats(cols(), 6), residual = RandomFloats(kRows * cols(), 7),
             next = RandomFloats(cols(), 8);
  for (const uint32_t split_k : {1u, 3u}) {
    const uint32_t split_stride = (kRows + 1) * cols();
    const auto parts = RandomFloats(split_k * split_stride, 5, 9.0f);
    std::vector<float> x(kRows * cols());
    for (size_t i = 0; i < x.size(); ++i) {
      for (uint32_t s = 0; s < split_k; ++s) x[i] += parts[s * split_stride + i];
    }
    std::vector<float> sum = Normed(x, weight);
    double largest = 0;
    for (size_t i = 0; i < sum.size(); ++i) {
      largest = std::max<double>(largest, std::abs(sum[i]));
      sum[i] += residual[i];
    }
    for (const auto format : {ActivationFormat::kF32, ActivationFormat::kF16,
                              ActivationFormat::kInt8, ActivationFormat::kFragments}) {
      if (format == ActivationFormat::kInt8 && cols() % 32 != 0) continue;
      const DeviceArray step = MakeStep(kRows), in(device(), parts), w(device(), weight),
                        res(device(), residual), updated(device(), residual.size() * 4),
                        w2(device(), next), out(device(), ActivationBytes(format, kRows, cols()));
      Run({AddNormLaunch(wide,
                         {.step = step.address(),
                          .source = in.address(),
                          .weight = w.address(),
                          .residual = res.address(),
                          .next_weight = w2.address(),
                          .normed = out.address(),
                          .cols = cols(),
                          .epsilon = kEpsilon,
                          .split_stride = split_stride,
                          .updated = updated.address()},
                         4, format, split_k)});
      EXPECT_TRUE(updated.Intact() && out.Intact());
      EXPECT_EQ(res.floats(), residual);
      const double bound = largest * NormRelativeBound(cols());
      EXPECT_TRUE(testing::IsNear(updated.floats(), sum, bound, 2 * testing::kEpsilonF32));
      CheckActivations(out, format, Normed(updated.floats(), next));
    }
  }
}

// The bits that those rows have where all of the step's are taken; no other row is touched.
TEST_P(NormTest, AddNormTakesTheRowsOfTheOutputs) {
  constexpr uint32_t kRows = 7;
  const std::vector<OutputEntry> outputs = {{6}, {0}, {3}};
  const auto x = RandomFloats(kRows * cols(), 5, 9.0f), weight = RandomFloats(cols(), 6),
             residual = RandomFloats(kRows * cols(), 7), next = RandomFloats(cols(), 8);
  const auto pick = [&](std::span<const float> all) {
    std::vector<float> picked;
    for (const OutputEntry& output : outputs) {
      const auto row = all.subspan(size_t{output.row} * cols(), cols());
      picked.insert(picked.end(), row.begin(), row.end());
    }
    return picked;
  };
  Tuning wide = tuning();
  wide.wide_norm_threads = 256;
  for (const Tuning& chosen : {tuning(), wide}) {
    const auto run = [&](NormRows rows, const std::vector<float>& source, uint32_t max_rows,
                         std::vector<float>& updated) {
      const DeviceArray step = MakeStep(kRows, outputs), in(device(), source), w(device(), weight),
                        res(device(), residual), w2(device(), next),
                        out(device(), source.size() * 4);
      Run({AddNormLaunch(chosen,
                         {.step = step.address(),
                          .source = in.address(),
                          .weight = w.address(),
                          .residual = res.address(),
                          .next_weight = w2.address(),
                          .normed = out.address(),
                          .cols = cols(),
                          .epsilon = kEpsilon,
                          .updated = res.address()},
                         max_rows, ActivationFormat::kF32, 1, rows)});
      EXPECT_TRUE(res.Intact() && out.Intact());
      updated = res.floats();
      return out.floats();
    };
    std::vector<float> all_updated, updated;
    const std::vector<float> all_normed = run(NormRows::kStep, x, 8, all_updated);
    std::vector<float> expected = residual;
    for (const OutputEntry& output : outputs) {
      const size_t at = size_t{output.row} * cols();
      std::copy_n(all_updated.begin() + at, cols(), expected.begin() + at);
    }
    for (const bool gathered : {true, false}) {
      const std::vector<float> normed = gathered ? run(NormRows::kGathered, x, 4, updated)
                                                 : run(NormRows::kOfOutputs, pick(x), 4, updated);
      EXPECT_EQ(updated, expected) << gathered;
      EXPECT_EQ(std::vector<float>(normed.begin(), normed.begin() + pick(x).size()),
                pick(all_normed))
          << gathered;
    }
  }
}

TEST_P(NormTest, AddSplitKAddsInTheOrderOfTheNorm) {
  constexpr uint32_t kRows = 3, kSplitK = 3;
  const uint32_t split_stride = (kRows + 2) * cols();
  const auto parts = RandomFloats(kSplitK * split_stride, 9);
  const DeviceArray step = MakeStep(kRows), in(device(), parts), out(device(), kRows * cols() * 4);
  Run({AddSplitKLaunch(tuning(),
                       {.count = RowCount(step),
                        .source = in.address(),
                        .destination = out.address(),
                        .cols = cols(),
                        .split_stride = split_stride},
                       kSplitK, 4)});
  EXPECT_TRUE(out.Intact());
  const std::vector<float> sums = out.floats();
  for (size_t i = 0; i < sums.size(); ++i) {
    ASSERT_EQ(sums[i], parts[i] + parts[split_stride + i] + parts[2 * split_stride + i]);
  }
}

TEST_P(NormTest, NarrowNormsWriteEveryFormat) {
  constexpr uint32_t kRows = 3;
  const auto x = RandomFloats(kRows * cols(), 1, 30.0f), weight = RandomFloats(cols(), 2);
  for (const auto format : {ActivationFormat::kF32, ActivationFormat::kF16, ActivationFormat::kInt8,
                            ActivationFormat::kFragments}) {
    if (format == ActivationFormat::kInt8 && cols() % 32 != 0) continue;
    const uint64_t bytes = ActivationBytes(format, kRows, cols());
    const DeviceArray step = MakeStep(kRows), in(device(), x), w(device(), weight),
                      residual(device(), std::vector<float>(x.size(), 0.0f)),
                      normed(device(), bytes), twice(device(), bytes);
    Run({RmsNormLaunch(tuning(),
                       {.step = step.address(),
                        .source = in.address(),
                        .weight = w.address(),
                        .destination = normed.address(),
                        .cols = cols(),
                        .epsilon = kEpsilon},
                       false, 4, format),
         AddNormLaunch(tuning(),
                       {.step = step.address(),
                        .source = in.address(),
                        .weight = w.address(),
                        .residual = residual.address(),
                        .next_weight = w.address(),
                        .normed = twice.address(),
                        .cols = cols(),
                        .epsilon = kEpsilon,
                        .updated = residual.address()},
                       4, format)});
    EXPECT_TRUE(normed.Intact() && twice.Intact());
    CheckActivations(normed, format, Normed(x, weight));
    CheckActivations(twice, format, Normed(residual.floats(), weight));
  }
}

INSTANTIATE_TEST_SUITE_P(Columns, NormTest, ::testing::Values(4u, 28u, 32u, 36u, 1028u, 5376u));

struct RopeCase {
  uint32_t num_heads, num_kv_heads, head_dim, position;
  double theta, scale;
};
class RopeTest : public KernelTest, public ::testing::WithParamInterface<RopeCase> {
 protected:
  void Check(uint32_t num_rows, DType port_dtype);
};

// `port_dtype`: of q, k and v.
void RopeTest::Check(uint32_t num_rows, DType port_dtype) {
  SCOPED_TRACE(std::string(Traits(port_dtype).name) + ", rows " + std::to_string(num_rows));
  const RopeCase& c = GetParam();
  const bool is_bf16 = port_dtype == DType::kBf16;
  const uint32_t bucket = std::bit_ceil(num_rows);
  const uint32_t q_dim = c.num_heads * c.head_dim, kv_dim = c.num_kv_heads * c.head_dim;
  const auto qkv = RandomFloats(bucket * (q_dim + 2 * kv_dim), 1),
             q_weight = RandomFloats(c.head_dim, 2), k_weight = RandomFloats(c.head_dim, 3);
  const DeviceArray step = MakeStep(num_rows, {}, 1, c.position), in(device(), qkv),
                    qw(device(), q_weight), kw(device(), k_weight),
                    table(device(),
                          MakeRotationTable(c.head_dim, c.position + num_rows, c.theta, c.scale)),
                    q(device(), num_rows * q_dim * 2), k(device(), num_rows * kv_dim * 2),
                    v(device(), num_rows * kv_dim * 2);
  const QkNormRopePush push = {.step = step.address(),
                               .qkv = in.address(),
                               .q = q.address(),
                               .k = k.address(),
                               .v = v.address(),
                               .q_weight = qw.address(),
                               .k_weight = kw.address(),
                               .rotation = table.address(),
                               .num_heads = c.num_heads,
                               .num_kv_heads = c.num_kv_heads,
                               .head_dim = c.head_dim,
                               .epsilon = kEpsilon};
  Run({QkNormRopeLaunch(ByAddress(), push, bucket, port_dtype)});
  const DeviceArray* const outputs[] = {&q, &k, &v};
  std::vector<std::vector<std::byte>> by_address;
  for (const DeviceArray* out : outputs) {
    by_address.emplace_back(out->data().begin(), out->data().end());
    std::ranges::fill(out->data(), testing::kGuardByte);
  }
  Run({QkNormRopeLaunch(tuning(), push, bucket, port_dtype)});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::ranges::equal(outputs[i]->data(), by_address[i]));
  EXPECT_TRUE(q.Intact() && k.Intact() && v.Intact());
  const auto check = [&](const DeviceArray& out, uint32_t first_head, uint32_t heads,
                         std::span<const float> weight) {
    const std::span<const uint16_t> numbers = out.as<uint16_t>();
    std::vector<float> actual(numbers.size());
    std::ranges::transform(numbers, actual.begin(), is_bf16 ? Bf16ToFloat : HalfToFloat);
    for (uint32_t i = 0; i < num_rows * heads; ++i) {
      const uint32_t row = i / heads, d = c.head_dim;
      std::vector<float> head(d);
      const size_t at = size_t{row} * (q_dim + 2 * kv_dim) + (first_head + i % heads) * size_t{d};
      std::copy_n(qkv.begin() + at, d, head.begin());
      if (!weight.empty()) {
        reference::RmsNorm(head, weight, kEpsilon, head);
        std::vector<float> rotated(d);
        for (uint32_t j = 0; j < d / 2; ++j) {
          // In float64: the reference's float32 angles are off by more at far positions.
          const double angle = (c.position + row) / c.scale * std::pow(c.theta, -2.0 * j / d);
          const double a = head[j], b = head[j + d / 2];
          rotated[j] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
          rotated[j + d / 2] = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
        }
        head = rotated;
      }
      const auto highest = *std::ranges::max_element(head, {}, [](float f) { return std::abs(f); });
      EXPECT_TRUE(testing::IsNear(std::span(actual).subspan(size_t{i} * d, d), head,
                                  std::abs(highest) * 2 * NormRelativeBound(d) + 0x1p-24,
                                  (is_bf16 ? testing::kEpsilonBf16 : testing::kEpsilonF16) * 1.01))
          << "row " << row << " head " << first_head + i % heads;
    }
  };
  check(q, 0, c.num_heads, q_weight);
  check(k, c.num_heads, c.num_kv_heads, k_weight);
  check(v, c.num_heads + c.num_kv_heads, c.num_kv_heads, {});
}

TEST_P(RopeTest, MatchesTheReference) {
  for (const uint32_t num_rows : {1u, 3u, 17u}) {
    for (const DType port_dtype : {DType::kF16, DType::kBf16}) Check(num_rows, port_dtype);
  }
}

// v is stored as it is, so its bits show the rounding.
TEST_F(KernelTest, RopeRoundsToTheNearestBfloat16) {
  constexpr uint32_t kHeadDim = 16;
  // Below a tie, ties to either side, above a tie; carries; the ends of the range; infinities; NaNs, also
  // the NaN that a carry would make a zero.
  const std::vector<uint32_t> bits = {0x3F807FFF, 0x3F808000, 0x3F818000, 0x3F808001,
                                      0xBF818000, 0x3FFF8000, 0x00800000, 0x7F7F7FFF,
                                      0x7F7F8000, 0x7F7FFFFF, 0x7F800000, 0xFF800000,
                                      0x7F800001, 0xFFFFFFFF, 0x80000000, 0x40490FDB};
  std::vector<float> qkv(3 * kHeadDim, 1.0f);
  std::ranges::transform(bits, qkv.begin() + 2 * kHeadDim, std::bit_cast<float, uint32_t>);
  const DeviceArray step = MakeStep(1), in(device(), qkv),
                    weight(device(), RandomFloats(kHeadDim, 2)),
                    table(device(), MakeRotationTable(kHeadDim, 1, 1e4, 1)),
                    out(device(), 3 * kHeadDim * 2);
  const QkNormRopePush push = {.step = step.address(),
                               .qkv = in.address(),
                               .q = out.address(),
                               .k = out.address() + kHeadDim * 2,
                               .v = out.address() + kHeadDim * 4,
                               .q_weight = weight.address(),
                               .k_weight = weight.address(),
                               .rotation = table.address(),
                               .num_heads = 1,
                               .num_kv_heads = 1,
                               .head_dim = kHeadDim,
                               .epsilon = kEpsilon};
  for (const Tuning& by : {ByAddress(), tuning()}) {
    Run({QkNormRopeLaunch(by, push, 1, DType::kBf16)});
    const auto v = out.as<uint16_t>().subspan(2 * kHeadDim);
    for (uint32_t i = 0; i < kHeadDim; ++i) {
      EXPECT_EQ(v[i], FloatToBf16(std::bit_cast<float>(bits[i]))) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, RopeTest,
                         ::testing::Values(RopeCase{4, 2, 64, 0, 1e4, 1},
                                           RopeCase{3, 1, 8, 254, 1e4, 1},
                                           RopeCase{2, 2, 128, 100000, 1e6, 8},
                                           RopeCase{5, 1, 256, 131069, 1e6, 1},
                                           RopeCase{1, 1, 72, 4095, 1e4, 1}));

}  // namespace
}  // namespace tandem::gpu
