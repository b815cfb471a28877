#include "services/npu_worker/emulator/kernels/out.h"

#include <gtest/gtest.h>

#include <functional>

#include "services/common/testing/compare.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/weights/dequantize.h"
#include "services/npu_worker/emulator/kernels/kernel_test_data.h"

namespace tandem::npu::emulator {
namespace {

// Bytes of a shard whose scales are small finite halves and whose quants are anything.
std::vector<std::byte> RandomShard(DType dtype, uint64_t rows, uint64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> shard(ShardBytes(dtype, rows, cols));
  for (std::byte& byte : shard) byte = static_cast<std::byte>(random());
  const auto planes = PlanesOf(dtype, rows, cols);
  const Plane& last = planes.back();  // of scales, or of the values themselves
  const bool is_bf16 = dtype == DType::kBf16, is_f32 = dtype == DType::kF32;
  std::normal_distribution<float> normal(0.0f, 0.05f);
  const uint64_t width = is_f32 ? 4 : 2;
  for (uint64_t at = last.offset; at < shard.size(); at += width) {
    const float value = normal(random);
    const uint16_t half = is_bf16 ? FloatToBf16(value) : FloatToHalf(value);
    std::memcpy(shard.data() + at, is_f32 ? static_cast<const void*>(&value) : &half, width);
  }
  return shard;
}

struct Shape {
  uint32_t step_rows, rows, cols, first_row, hidden_dim;
};

class OutKernelTest : public ::testing::TestWithParam<int> {
 protected:
  DType dtype() const { return static_cast<DType>(GetParam()); }
  ParallelFor parallel_for_;
};

TEST_P(OutKernelTest, IsTheProductOfEveryRowWithEveryWeightRow) {
  for (const Shape& shape : std::vector<Shape>{{1, 1, 256, 0, 1},
                                               {3, 5, 256, 2, 11},
                                               {17, 64, 512, 0, 64},
                                               {2, 65, 768, 7, 97},
                                               {5, 131, 256, 0, 131}}) {
    const auto shard = RandomShard(dtype(), shape.rows, shape.cols, shape.rows);
    std::vector<uint16_t> exchange = RandomHalves(shape.step_rows * shape.cols, 5);
    const uint64_t projection_offset = exchange.size() * 2;
    exchange.resize(exchange.size() + 2ull * shape.step_rows * shape.hidden_dim, 0x5555);
    const OutParameters layer = {.weight_dtype = static_cast<uint32_t>(dtype()),
                                 .num_rows = shape.rows,
                                 .num_cols = shape.cols,
                                 .first_row = shape.first_row,
                                 .hidden_dim = shape.hidden_dim,
                                 .projection_offset = projection_offset};
    ASSERT_OK(Out(shape.step_rows, layer, AsBytes(exchange), shard, parallel_for_));
    std::vector<float> weights(shape.cols);
    for (uint32_t i = 0; i < shape.rows; ++i) {
      DequantizePackedRow(dtype(), RowInShard(dtype(), shape.rows, shape.cols, shard.data(), i),
                          weights);
      for (uint32_t r = 0; r < shape.step_rows; ++r) {
        const auto input =
            testing::HalvesToFloats(std::span(exchange).subspan(r * shape.cols, shape.cols));
        double expected = 0.0;
        for (uint32_t c = 0; c < shape.cols; ++c) expected += double{weights[c]} * input[c];
        float actual;
        std::memcpy(&actual,
                    exchange.data() + projection_offset / 2 +
                        2 * (r * shape.hidden_dim + shape.first_row + i),
                    sizeof(actual));
        ASSERT_NEAR(actual, expected,
                    testing::DotBound(shape.cols, testing::Norm(weights), testing::Norm(input)))
            << "row " << r << " output " << i;
      }
    }
    // Outputs of other shards are left alone.
    for (uint32_t r = 0; r < shape.step_rows; ++r) {
      for (uint32_t o = 0; o < shape.hidden_dim; ++o) {
        if (o >= shape.first_row && o < shape.first_row + shape.rows) continue;
        EXPECT_EQ(exchange[projection_offset / 2 + 2 * (r * shape.hidden_dim + o)], 0x5555);
      }
    }
  }
}

TEST_P(OutKernelTest, ARowDoesNotDependOnItsNeighbours) {
  const uint32_t cols = 512, rows = 67, step_rows = 9;
  const auto shard = RandomShard(dtype(), rows, cols, 3);
  const auto input = RandomHalves(step_rows * cols, 6);
  const OutParameters layer = {.weight_dtype = static_cast<uint32_t>(dtype()),
                               .num_rows = rows,
                               .num_cols = cols,
                               .hidden_dim = rows,
                               .projection_offset = step_rows * cols * 2};
  std::vector<uint16_t> together = input;
  together.resize(step_rows * (cols + 2 * rows));
  ASSERT_OK(Out(step_rows, layer, AsBytes(together), shard, parallel_for_));
  for (uint32_t r = 0; r < step_rows; ++r) {
    std::vector<uint16_t> alone(step_rows * (cols + 2 * rows));
    std::copy_n(input.begin() + r * cols, cols, alone.begin());
    ASSERT_OK(Out(1, layer, AsBytes(alone), shard, parallel_for_));
    EXPECT_TRUE(std::equal(alone.begin() + step_rows * cols,
                           alone.begin() + step_rows * cols + 2 * rows,
                           together.begin() + step_rows * cols + r * 2 * rows))
        << "row " << r;
  }
}

TEST_P(OutKernelTest, RefusesParametersThatLeaveTheirBuffers) {
  const auto shard = RandomShard(dtype(), 8, 256, 3);
  std::vector<uint16_t> exchange(2 * 256 + 4 * 8);
  const OutParameters good = {.weight_dtype = static_cast<uint32_t>(dtype()),
                              .num_rows = 8,
                              .num_cols = 256,
                              .hidden_dim = 8,
                              .projection_offset = 2 * 256 * 2};
  EXPECT_OK(Out(2, good, AsBytes(exchange), shard, parallel_for_));
  EXPECT_FALSE(Out(3, good, AsBytes(exchange), shard, parallel_for_).ok());
  EXPECT_FALSE(
      Out(2, good, AsBytes(exchange), std::span(shard).first(shard.size() - 1), parallel_for_)
          .ok());
  const std::vector<std::function<void(OutParameters&)>> faults = {
      [](OutParameters& p) { p.magic = 0; },
      [](OutParameters& p) { p.weight_dtype = kNumDTypes; },
      [](OutParameters& p) { p.num_rows = 0; },
      [](OutParameters& p) { p.num_rows = 9; },
      [](OutParameters& p) { p.num_rows = 0xFFFFFFFF; },
      [](OutParameters& p) { p.num_cols = 0; },
      [](OutParameters& p) { p.num_cols = 0xFFFFFF00; },
      [](OutParameters& p) { p.first_row = 1; },
      [](OutParameters& p) { p.first_row = 0xFFFFFFFF; },
      [](OutParameters& p) { p.hidden_dim = 0xFFFFFFFF; },
      [](OutParameters& p) { p.attention_offset = 4; },
      [](OutParameters& p) { p.attention_offset = ~uint64_t{7}; },
      [](OutParameters& p) { p.projection_offset += 8; },
      [](OutParameters& p) { p.weight_offset = 8; },
      [](OutParameters& p) { p.weight_offset = ~uint64_t{7}; },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    OutParameters bad = good;
    faults[i](bad);
    EXPECT_FALSE(Out(2, bad, AsBytes(exchange), shard, parallel_for_).ok()) << "fault " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, OutKernelTest, ::testing::Range(0, kNumDTypes),
                         [](const auto& test) {
                           return std::string(Traits(static_cast<DType>(test.param)).name);
                         });

}  // namespace
}  // namespace tandem::npu::emulator
