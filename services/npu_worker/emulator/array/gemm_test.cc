// The GEMM's control code on an emulated array, with the cores' own functions, against float64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "services/common/testing/status_matchers.h"
#include "services/common/weights/dequantize.h"
#include "services/npu_worker/control/gemm.h"
#include "services/npu_worker/emulator/array/array_test_support.h"
#include "services/npu_worker/emulator/array/configuration.h"
#include "services/npu_worker/kernels/aie/gemm_tile.h"
#include "services/npu_worker/kernels/aie_host/gemm_cores.h"

namespace tandem::npu::emulator {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

constexpr uint32_t kGuard = 0x7FC0BEEF;  // a NaN
constexpr double kBound = 1e-2;          // mean relative L1

struct Size {
  uint32_t num_rows, num_outputs, num_inputs;
};

// Operands of a product, and its output between guards.
class Product {
 public:
  Product(DType dtype, const Size& size, uint32_t output_stride, float weight_deviation = 0.05f)
      : dtype_(dtype), size_(size), stride_(output_stride) {
    std::mt19937 random(size.num_rows + 7 * size.num_outputs + 31 * size.num_inputs);
    std::normal_distribution<float> normal;
    const size_t padded_rows = GemmPaddedRows(size.num_rows);
    activations_.resize(padded_rows * size.num_inputs / 2);
    auto* halves = reinterpret_cast<bfloat16*>(activations_.data());
    for (size_t i = 0; i < padded_rows * size.num_inputs; ++i) halves[i] = bfloat16(normal(random));
    values_.resize(size_t{size.num_outputs} * size.num_inputs);
    if (dtype == DType::kBf16) {
      weights_.resize(GemmBf16Bytes(size.num_outputs, size.num_inputs) / 4);
      auto* const packed = reinterpret_cast<bfloat16*>(weights_.data());
      for (size_t output = 0; output < size.num_outputs; ++output) {
        for (size_t input = 0; input < size.num_inputs; ++input) {
          // What a worker dequantises is float32.
          float& value = values_[output * size.num_inputs + input];
          value = normal(random) * weight_deviation;
          packed[Bf16Place(output, input)] = bfloat16(value);
        }
      }
      output_.assign(padded_rows * stride_, kGuard);
      return;
    }
    weights_.resize(ShardBytes(dtype, size.num_outputs, size.num_inputs) / 4);
    auto* shard = reinterpret_cast<std::byte*>(weights_.data());
    for (uint32_t row = 0; row < size.num_outputs; ++row) {
      const std::span<float> values =
          std::span(values_).subspan(row * size.num_inputs, size.num_inputs);
      for (float& value : values) value = normal(random) * weight_deviation;
      const MutablePackedRow packed =
          RowInShard(dtype, size.num_outputs, size.num_inputs, shard, row);
      QuantizePackedRow(dtype, values, packed);
      DequantizePackedRow(dtype, packed, values);
    }
    output_.assign(padded_rows * stride_, kGuard);
  }

  GemmJob Job(const ArrayShape& array) const {
    return {.array = array,
            .weight_dtype = dtype_,
            .num_rows = size_.num_rows,
            .num_outputs = size_.num_outputs,
            .num_inputs = size_.num_inputs,
            .output_stride = stride_,
            .activations = {.argument = 0},
            .weights = {.argument = 1},
            .output = {.argument = 2}};
  }
  // Runs a job on an array with the design for its weights.
  absl::Status Run(const GemmJob& job, Faults faults = {}) {
    DeviceMemory memory;
    const uint64_t buffers[] = {memory.Add(activations_), memory.Add(weights_),
                                memory.Add(output_)};
    const auto design = DesignUnderTest("gemm_" + std::string(Traits(dtype_).name), job.array);
    if (!design.ok()) return design.status();
    const auto code = BuildGemm(job);
    if (!code.ok()) return code.status();
    EmulatedArray array(job.array, *design, faults);
    const AddressSpace::View view(memory.space());
    return array.Run(code->words(), buffers, view);
  }

  // Sum of the errors over the sum of the magnitudes, of the rows and outputs that exist.
  double Error() const {
    const auto* activations = reinterpret_cast<const bfloat16*>(activations_.data());
    const auto* output = reinterpret_cast<const float*>(output_.data());
    double error = 0, magnitude = 0;
    for (size_t row = 0; row < size_.num_rows; ++row) {
      for (size_t n = 0; n < size_.num_outputs; ++n) {
        double sum = 0;
        for (size_t k = 0; k < size_.num_inputs; ++k) {
          sum +=
              double{activations[row * size_.num_inputs + k]} * values_[n * size_.num_inputs + k];
        }
        error += std::fabs(sum - output[row * stride_ + n]);
        magnitude += std::fabs(sum);
      }
    }
    return error / magnitude;
  }
  // Numbers past a row's outputs, filled up to 32, or to 64 with weights in bf16.
  bool GuardsHold() const {
    const size_t multiple = dtype_ == DType::kBf16 ? 64 : 32;
    const size_t padded = (size_.num_outputs + multiple - 1) / multiple * multiple;
    for (size_t i = 0; i < output_.size(); ++i) {
      if (i % stride_ >= padded && output_[i] != kGuard) return false;
    }
    return true;
  }
  const std::vector<uint32_t>& output() const { return output_; }

 private:
  // [outputs / 64][inputs / 64][inputs / 8 of a tile][outputs / 8 of a tile][8 inputs][8 outputs].
  size_t Bf16Place(size_t output, size_t input) const {
    const size_t tile = output / 64 * (size_.num_inputs / 64) + input / 64;
    const size_t block = input % 64 / 8 * 8 + output % 64 / 8;
    return ((tile * 64 + block) * 8 + input % 8) * 8 + output % 8;
  }

  const DType dtype_;
  const Size size_;
  const uint32_t stride_;
  std::vector<uint32_t> activations_;
  std::vector<uint32_t> weights_;
  std::vector<float> values_;
  std::vector<uint32_t> output_;
};

constexpr ArrayShape kNpu4 = {};
constexpr ArrayShape kNpu1 = {.generation = 3, .num_columns = 4};

class GemmSizesTest : public ::testing::TestWithParam<std::tuple<ArrayShape, DType>> {};

TEST_P(GemmSizesTest, OddSizesAreWithinTheBoundAndGuardsHold) {
  const auto [array, dtype] = GetParam();
  // One row; tiles less one, whole and one more; a chunk of scales cut short; an odd number of
  // packed tiles; several waves in both directions.
  const Size sizes[] = {{1, 33, 64},   {63, 64, 128},   {64, 65, 192},
                        {65, 97, 256}, {257, 129, 320}, {100, 577, 576}};
  double worst = 0;
  for (const Size& size : sizes) {
    const uint32_t multiple = dtype == DType::kBf16 ? 64 : 32;
    Product product(dtype, size, (size.num_outputs + multiple - 1) / multiple * multiple + 5);
    ASSERT_OK(product.Run(product.Job(array))) << size.num_rows << " " << size.num_outputs;
    const double error = product.Error();
    EXPECT_LE(error, kBound) << size.num_rows << " x " << size.num_outputs << " x "
                             << size.num_inputs;
    EXPECT_GT(error, 0) << "bfloat16 is not exact";
    EXPECT_TRUE(product.GuardsHold());
    worst = std::max(worst, error);
  }
  std::printf("largest error %.5f\n", worst);
}

INSTANTIATE_TEST_SUITE_P(AllArrays, GemmSizesTest,
                         ::testing::Combine(::testing::Values(kNpu1, kNpu4),
                                            ::testing::Values(DType::kQ8_0, DType::kQ4_0,
                                                              DType::kBf16)),
                         [](const auto& instance) {
                           return (std::get<0>(instance.param).generation == 3 ? "npu1_"
                                                                               : "npu4_") +
                                  std::string(Traits(std::get<1>(instance.param)).name);
                         });

// Out of Gemma 3, as (hidden_dim, q_dim): a 16th of the inputs for the two largest, for time's sake.  The
// rows end within a block of 64, and within a core row's share.
TEST(GemmTest, OutOfEveryGemma3IsWithinTheBound) {
  const Size sizes[] = {
      {70, 640, 1024}, {5, 1152, 1024}, {1, 2560, 2048}, {3, 3840, 256}, {2, 5376, 256}};
  for (const ArrayShape& array : {kNpu1, kNpu4}) {
    for (const Size& size : sizes) {
      Product product(DType::kBf16, size, (size.num_outputs + 63) / 64 * 64);
      ASSERT_OK(product.Run(product.Job(array)));
      EXPECT_LE(product.Error(), kBound) << size.num_outputs << " x " << size.num_inputs;
      std::printf("%s, %u rows, %u x %u: error %.5f\n", array.generation == 3 ? "npu1" : "npu4",
                  size.num_rows, size.num_outputs, size.num_inputs, product.Error());
    }
  }
}

// Weights in bfloat16 need no second tile, and no limit of a task's repeats binds them.
TEST(GemmTest, Bf16TakesFewOutputsAndManyInputs) {
  for (const Size& size : {Size{2, 1, 64}, Size{1, 64, 64 * 800}}) {
    Product product(DType::kBf16, size, 64);
    ASSERT_OK(product.Run(product.Job(kNpu1)));
    EXPECT_LE(product.Error(), kBound);
  }
}

// More than 64 chunks of scales: a task has at most 64 repeats.
TEST(GemmTest, InputsBeyondOneTaskAreTaken) {
  Product product(DType::kQ4_0, {5, 64, 256 * 65 + 64}, 64);
  ASSERT_OK(product.Run(product.Job(kNpu1)));
  EXPECT_LE(product.Error(), kBound);
}

// Scales below float16's smallest normal number.
TEST(GemmTest, SmallScalesKeepTheirPrecision) {
  Product product(DType::kQ8_0, {3, 64, 256}, 64, 1e-4f);
  ASSERT_OK(product.Run(product.Job(kNpu1)));
  EXPECT_LE(product.Error(), kBound);
}

TEST(GemmTest, EveryFloat16IsTheScaleThatItSays) {
  const GemmCore& core = kGemmCoreAie2;
  core.start();
  uint16_t halves[512];
  bfloat16 scales[512];
  for (uint32_t first = 0; first < 0x10000; first += 512) {
    for (uint32_t i = 0; i < 512; ++i) halves[i] = static_cast<uint16_t>(first + i);
    core.scales(halves, scales);
    for (uint32_t i = 0; i < 512; ++i) {
      if ((halves[i] & 0x7C00) == 0x7C00) continue;  // infinities and NaN are no scales
      const uint32_t exponent = halves[i] >> 10 & 31, mantissa = halves[i] & 1023;
      const double value =
          (exponent == 0 ? std::ldexp(mantissa, -24)
                         : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25)) *
          ((halves[i] & 0x8000) != 0 ? -1 : 1);
      // [groups of 8 outputs][8 outputs][8] becomes [groups][8][8 outputs].
      const float scale = scales[i / 64 * 64 + i % 8 * 8 + i / 8 % 8];
      ASSERT_LE(std::fabs(scale - value), std::fabs(value) / 256) << halves[i];
    }
  }
}

TEST(GemmTest, TheHostMultipliesToTheBitsOfTheCoresOwnFunction) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  constexpr size_t kTile = size_t{kGemmInputs} * kGemmInputs;
  for (const GemmCore* core : {&kGemmCoreAie2, &kGemmCoreAie2p}) {
    core->start();
    for (const float deviation : {1.0f, 1e-20f}) {  // the second makes blocks of unusual exponents
      std::vector<bfloat16> activations(kTile), weights(kTile);
      std::vector<float> sums(kTile);
      for (auto& value : activations) value = bfloat16(normal(random) * deviation);
      for (auto& value : weights) value = bfloat16(normal(random) * deviation);
      for (auto& value : sums) value = normal(random) * deviation * deviation;
      std::vector<float> as_written = sums;
      core->multiply(activations.data(), weights.data(), sums.data());
      core->multiply_as_written(activations.data(), weights.data(), as_written.data());
      EXPECT_EQ(std::memcmp(sums.data(), as_written.data(), kTile * sizeof(float)), 0);
    }
  }
}

// Cores start in floor mode.
TEST(GemmTest, WithoutItsRoundingModeACoreMissesTheBound) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<bfloat16> a(64 * 64), b(64 * 64);
  for (bfloat16& value : a) value = bfloat16(normal(random));
  for (bfloat16& value : b) value = bfloat16(normal(random));
  // Both are [8 blocks][8 blocks][8][8].
  const auto at = [](size_t row, size_t column) {
    return ((row / 8 * 8 + column / 8) * 8 + row % 8) * 8 + column % 8;
  };
  const auto error = [&] {
    std::vector<float> sums(64 * 64);
    kGemmCoreAie2p.multiply(a.data(), b.data(), sums.data());
    double wrong = 0, magnitude = 0;
    for (size_t row = 0; row < 64; ++row) {
      for (size_t n = 0; n < 64; ++n) {
        double sum = 0;
        for (size_t k = 0; k < 64; ++k) sum += double{a[at(row, k)]} * b[at(k, n)];
        wrong += std::fabs(sum - sums[at(row, n)]);
        magnitude += std::fabs(sum);
      }
    }
    return wrong / magnitude;
  };
  aie::set_rounding(aie::rounding_mode::floor);
  EXPECT_GT(error(), 1.5 * kBound);
  kGemmCoreAie2p.start();
  EXPECT_LE(error(), kBound);
}

TEST(GemmTest, ARowPastABufferFailsAndWritesNothing) {
  Product product(DType::kQ8_0, {64, 64, 64}, 64);
  const std::vector<uint32_t> before = product.output();
  GemmJob job = product.Job(kNpu4);
  job.num_rows = 65;
  EXPECT_THAT(product.Run(job), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("descriptor")));
  EXPECT_EQ(product.output(), before);
  job = product.Job(kNpu4);
  job.output.offset = 4;
  EXPECT_THAT(product.Run(job), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("to memory")));
  EXPECT_EQ(product.output(), before);
}

TEST(GemmTest, AnInjectedWrongAnswerIsSeen) {
  Product product(DType::kQ8_0, {64, 64, 64}, 64);
  ASSERT_OK(product.Run(product.Job(kNpu4), {.wrong_answer = true}));
  const std::vector<uint32_t> wrong = product.output();
  ASSERT_OK(product.Run(product.Job(kNpu4)));
  EXPECT_NE(product.output(), wrong);
}

TEST(GemmTest, JobsThatDoNotFitAreRefusedByName) {
  const Product product(DType::kQ8_0, {64, 64, 64}, 64);
  const auto refuses = [&](void (*change)(GemmJob&), const char* text) {
    GemmJob job = product.Job(kNpu4);
    change(job);
    EXPECT_THAT(BuildGemm(job).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refuses([](GemmJob& job) { job.weight_dtype = DType::kF16; }, "format f16");
  refuses([](GemmJob& job) { job.num_rows = 0; }, "no rows");
  refuses([](GemmJob& job) { job.num_outputs = 0; }, "no outputs");
  refuses(
      [](GemmJob& job) {
        job.weight_dtype = DType::kBf16;
        job.num_outputs = 63;
        job.output_stride = 63;
      },
      "must be 64 or more");
  refuses([](GemmJob& job) { job.num_inputs = 96; }, "96 inputs");
  refuses([](GemmJob& job) { job.num_inputs = 49216; }, "49216 inputs");
  refuses([](GemmJob& job) { job.num_outputs = 32; }, "32 outputs");
  refuses([](GemmJob& job) { job.num_outputs = 65; }, "64 numbers apart");
  refuses([](GemmJob& job) { job.array.num_columns = 3; }, "3 columns");
  refuses([](GemmJob& job) { job.num_rows = 1 << 30; }, "4 GiB");
}

}  // namespace
}  // namespace tandem::npu::emulator
