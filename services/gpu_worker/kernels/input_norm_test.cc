// Matmuls that compute their input themselves, against a norm and a matmul one after the other.
// The numbers are such that all sums of squares are exact, and the first norm divides by 2: the
// order of sums does not show, so the bits are the same.
#include "services/gpu_worker/kernels/launches.h"
#include "services/gpu_worker/kernels/matmul.h"
#include "services/gpu_worker/kernels/matvec_case_for_test.h"

namespace tandem::gpu {
namespace {

struct InputNormCase {
  DType format = DType::kQ4_0;
  uint32_t n_dim = 100;
  uint32_t k_dim = 544;
  uint32_t split_k = 1;    // of x
  uint32_t groups = 1;     // most workgroups
  uint32_t threads = 512;  // most of a workgroup
  bool geglu = false;
  std::vector<uint32_t> shard_rows = {};
};

class InputNormTest : public MatvecTest {
 protected:
  static constexpr MatvecShape kShape = {.teams = 2};

  void Check(const InputNormCase& c) {
    SCOPED_TRACE(::testing::Message()
                 << Traits(c.format).name << " n " << c.n_dim << " k " << c.k_dim << " split_k "
                 << c.split_k << " groups " << c.groups << " threads " << c.threads);
    tuning_.norm_groups = c.groups;
    tuning_.wide_norm_threads = c.threads;
    const TileMatrix matrix(device(), c.format, c.n_dim, c.k_dim, 1, c.shard_rows);
    std::mt19937 random(7);
    const auto pick = [&random](uint32_t n) { return static_cast<float>(random() % n); };
    // Partial sums: multiples of 1/2 that add up to 2 or -2.
    std::vector<float> x(size_t{c.split_k} * c.k_dim), residual(c.k_dim), weight(c.k_dim);
    for (uint32_t k = 0; k < c.k_dim; ++k) {
      float left = pick(2) * 4 - 2;
      for (uint32_t s = 1; s < c.split_k; ++s) {
        x[size_t{s} * c.k_dim + k] = pick(9) / 2 - 2;
        left -= x[size_t{s} * c.k_dim + k];
      }
      x[k] = left;
      residual[k] = pick(33) / 8 - 2;
      weight[k] = pick(4) / 2 + 0.5f;
    }
    const DeviceArray sums(device(), x), scale(device(), weight),
        next(device(), RandomFloats(c.k_dim, 3)), step = MakeStep(1);

    const DeviceArray in_place(device(), residual),
        normed(device(), ActivationRowBytes(ActivationFormat::kInt8, c.k_dim));
    Run({AddNormLaunch(tuning_,
                       {.step = step.address(),
                        .source = sums.address(),
                        .weight = scale.address(),
                        .residual = in_place.address(),
                        .next_weight = next.address(),
                        .normed = normed.address(),
                        .cols = c.k_dim,
                        .epsilon = 0.0f,
                        .split_stride = c.k_dim,
                        .updated = in_place.address()},
                       1, ActivationFormat::kInt8, c.split_k)});
    const std::vector<std::byte> expected = Multiply(c, matrix, step, normed.address(), {});

    const DeviceArray before(device(), residual), updated(device(), residual.size() * 4);
    InputNorm norm = {.split_k = c.split_k,
                      .weight = scale.address(),
                      .next_weight = next.address(),
                      .residual = before.address(),
                      .updated = updated.address(),
                      .epsilon = 0.0f};
    EXPECT_EQ(Multiply(c, matrix, step, sums.address(), norm), expected);
    EXPECT_TRUE(updated.Intact());
    EXPECT_EQ(updated.floats(), in_place.floats());
    EXPECT_EQ(before.floats(), residual);
    norm.updated = 0;
    EXPECT_EQ(Multiply(c, matrix, step, sums.address(), norm), expected);
  }

 private:
  std::vector<std::byte> Multiply(const InputNormCase& c, const TileMatrix& matrix,
                                  const DeviceArray& step, uint64_t x,
                                  const std::optional<InputNorm>& norm) {
    MatvecShape shape = kShape;
    shape.tiles = c.geglu ? 2 : 1;
    EXPECT_TRUE(CanNormInput(tuning_, matrix.tensor, shape));
    const uint32_t columns = c.geglu ? c.n_dim / 2 : c.n_dim;
    const ActivationFormat format = c.geglu ? ActivationFormat::kInt8 : ActivationFormat::kF32;
    const DeviceArray output(device(), ActivationRowBytes(format, columns));
    std::vector<Launch> launches;
    for (const DeviceShard& shard : matrix.tensor.shards) {
      launches.push_back(MatvecLaunch(tuning_, matrix.tensor, shard, shape,
                                      {.count = RowCount(step),
                                       .x = x,
                                       .destination = output.address(),
                                       .out_stride = columns,
                                       .geglu = c.geglu,
                                       .out_format = format,
                                       .max_rows = 1,
                                       .norm = norm}));
      if (norm.has_value()) {
        EXPECT_LE(launches.back().groups_x, c.groups);
      }
    }
    Run(launches);
    EXPECT_TRUE(output.Intact());
    return {output.data().begin(), output.data().end()};
  }
};

TEST_F(InputNormTest, IsTheNormAndTheProductInOneInEveryFormat) {
  for (const DType format : {DType::kQ8_0, DType::kQ4_0, DType::kQ5_0, DType::kIq4Nl}) {
    Check({.format = format, .split_k = 2, .groups = 2});
  }
  for (const DType format : {DType::kQ6_K, DType::kQ4_K, DType::kQ5_K}) {
    Check({.format = format, .k_dim = 768, .split_k = 2, .groups = 2});
  }
}

TEST_F(InputNormTest, AddsPartialSums) {
  for (const uint32_t split_k : {1u, 3u, 5u}) Check({.k_dim = 96, .split_k = split_k, .groups = 3});
}

// One set of teams to four, tiles in turn, and sets that run out of tiles.
TEST_F(InputNormTest, DividesTilesInAnyWay) {
  for (const auto& [groups, threads] : {std::pair{9u, 512u}, {2u, 512u}, {1u, 512u}, {1u, 128u}}) {
    Check({.n_dim = 225, .groups = groups, .threads = threads});
    Check({.n_dim = 448, .groups = groups, .threads = threads, .geglu = true});
  }
  Check({.n_dim = 225, .groups = 2, .shard_rows = {96}});
}

TEST_F(InputNormTest, IsTakenWhereItWasSeenToGain) {
  tuning_.norm_inputs = 1;
  tuning_.matvec_max_rows = 4;
  tuning_.matrix.narrow = false;
  tuning_.max_shared_bytes = 48 << 10;
  const auto takes = [this](DType dtype, uint32_t rows) {
    const DeviceTensor weights = {dtype, 8192, 5376, {}};
    const gpu::Matmul matmul = ChooseMatmul(tuning_, weights, false, false, rows);
    EXPECT_EQ(matmul.kernel, MatmulKernel::kMatvec);
    return TakesInputNorm(tuning_, matmul, weights, rows);
  };
  EXPECT_TRUE(takes(DType::kQ4_0, 1));
  EXPECT_FALSE(takes(DType::kQ4_0, 2));
  EXPECT_FALSE(takes(DType::kQ4_K, 1));
  EXPECT_FALSE(takes(DType::kQ8_0, 1));
  tuning_.norm_inputs = 0;
  EXPECT_FALSE(takes(DType::kQ4_0, 1));
}

TEST_F(InputNormTest, IsNotForFloatsSplitKOrMoreThanFits) {
  const DeviceTensor q4 = {DType::kQ4_0, 8192, 5376, {}}, bf16 = {DType::kBf16, 8192, 5376, {}};
  tuning_.max_shared_bytes = 16384;
  EXPECT_TRUE(CanNormInput(tuning_, q4, {.teams = 7}));
  EXPECT_FALSE(CanNormInput(tuning_, bf16, {.teams = 7}));
  EXPECT_FALSE(CanNormInput(tuning_, q4, {.teams = 7, .split_k = 2}));
  EXPECT_FALSE(CanNormInput(tuning_, q4, {.narrow = true, .teams = 7}));
  EXPECT_FALSE(CanNormInput(tuning_, {DType::kQ4_0, 8192, 16384, {}}, {.teams = 7}));
}

}  // namespace
}  // namespace tandem::gpu
