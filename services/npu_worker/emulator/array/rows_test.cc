// The row functions' control code on an emulated array, with the cores' own functions, against float64.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "services/common/testing/status_matchers.h"
#include "services/npu_worker/control/rows.h"
#include "services/npu_worker/emulator/array/array_test_support.h"
#include "services/npu_worker/emulator/array/configuration.h"
#include "services/npu_worker/kernels/aie_host/row_cores.h"

namespace tandem::npu::emulator {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

constexpr ArrayShape kNpu1 = {.generation = 3, .num_columns = 4};
constexpr ArrayShape kNpu4 = {};
constexpr uint32_t kGuard = 0x7FC0BEEF;  // a NaN
constexpr double kBound = 1e-2;          // mean relative L1
constexpr double kEpsilon = 1e-6;

// Operands of a job, whose rows are further apart than they are long, and its output between guards.
class Rows {
 public:
  Rows(RowFunction function, uint32_t num_rows, uint32_t size, uint32_t count,
       uint32_t num_heads = 1)
      : random_(num_rows + 7 * size + count) {
    job_ = {.function = function,
            .num_rows = num_rows,
            .size = size,
            .num_heads = num_heads,
            .count = count,
            .epsilon = kEpsilon,
            .first = {.place = {.argument = 0}},
            .second = {.place = {.argument = 1}},
            .output = {.place = {.argument = 2, .offset = 128}},
            .weights = {.argument = 3}};
    words_ = RowWordsOf(job_);
    job_.first.stride = words_.first + 32;
    job_.second.stride = words_.second + 96;
    job_.output.stride = words_.output + 64;
    Fill(first_, job_.first.stride, function == RowFunction::kRope ? 1.0f : 3.0f);
    Fill(second_, job_.second.stride, 5.0f);
    std::normal_distribution<float> normal(1.0f, 0.5f);
    weights_.resize(std::max(words_.weights, 1u));
    for (uint32_t& word : weights_) word = std::bit_cast<uint32_t>(normal(random_));
    output_.assign(32 + size_t{PaddedJobRows(num_rows)} * job_.output.stride + 8, kGuard);
  }

  RowJob& job() { return job_; }
  absl::Status Run(const ArrayShape& array) {
    DeviceMemory memory;
    const uint64_t buffers[] = {memory.Add(first_), memory.Add(second_), memory.Add(output_),
                                memory.Add(weights_)};
    job_.array = array;
    const auto design = DesignUnderTest("rows", array);
    if (!design.ok()) return design.status();
    const auto code = BuildRows(job_);
    if (!code.ok()) return code.status();
    EmulatedArray emulated(array, *design);
    const AddressSpace::View view(memory.space());
    return emulated.Run(code->words(), buffers, view);
  }

  // Sum of the errors over the sum of the magnitudes.
  double Error() const {
    double error = 0, magnitude = 0;
    for (uint32_t row = 0; row < job_.num_rows; ++row) {
      const std::vector<double> expected = Expected(row);
      for (size_t i = 0; i < expected.size(); ++i) {
        error += std::fabs(expected[i] - Output(row, i));
        magnitude += std::fabs(expected[i]);
      }
    }
    return error / magnitude;
  }
  bool GuardsHold() const {
    const size_t rows = PaddedJobRows(job_.num_rows);
    for (size_t i = 0; i < output_.size(); ++i) {
      const size_t at = i - 32;
      const bool is_output =
          i >= 32 && at / job_.output.stride < rows && at % job_.output.stride < words_.output;
      if (!is_output && output_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  void Fill(std::vector<uint32_t>& words, uint32_t stride, float deviation) {
    std::normal_distribution<float> normal(0.0f, deviation);
    words.resize(std::max<size_t>(size_t{PaddedJobRows(job_.num_rows)} * stride, 1));
    for (size_t i = 0; i < words.size(); ++i) {
      const bool is_behind = job_.count != 0 && i % stride >= job_.count;
      words[i] = std::bit_cast<uint32_t>(is_behind ? 0.0f : normal(random_));
    }
  }
  double First(uint32_t row, size_t i) const {
    return std::bit_cast<float>(first_[size_t{row} * job_.first.stride + i]);
  }
  double Second(uint32_t row, size_t i) const {
    return std::bit_cast<float>(second_[size_t{row} * job_.second.stride + i]);
  }
  double Output(uint32_t row, size_t i) const {
    const size_t at = 32 + size_t{row} * job_.output.stride;
    if (job_.function == RowFunction::kNormAdd) return std::bit_cast<float>(output_[at + i]);
    const uint32_t word = output_[at + i / 2];
    return std::bit_cast<float>(i % 2 == 0 ? word << 16 : word & 0xFFFF0000u);
  }
  std::vector<double> Normed(std::span<const double> row) const {
    double squares = 0;
    for (const double value : row) squares += value * value;
    const double count = job_.count == 0 ? static_cast<double>(row.size()) : job_.count;
    const double factor = 1 / std::sqrt(squares / count + kEpsilon);
    std::vector<double> normed;
    for (size_t i = 0; i < row.size(); ++i) {
      normed.push_back(row[i] * factor * std::bit_cast<float>(weights_[i]));
    }
    return normed;
  }
  std::vector<double> Expected(uint32_t row) const {
    const size_t size = job_.size, half = size / 2;
    std::vector<double> numbers, expected;
    if (job_.function == RowFunction::kGeglu) {
      for (size_t i = 0; i < size; ++i) {
        const double x = First(row, 2 * i);
        const double inner = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
        expected.push_back(0.5 * x * (1 + std::tanh(inner)) * First(row, 2 * i + 1));
      }
      return expected;
    }
    if (job_.function == RowFunction::kRope) {
      for (size_t head = 0; head < job_.num_heads; ++head) {
        numbers.clear();
        for (size_t i = 0; i < size; ++i) numbers.push_back(Second(row, head * size + i));
        const std::vector<double> normed = Normed(numbers);
        for (size_t i = 0; i < size; ++i) {
          const double cosine = First(row, i % half), sine = First(row, half + i % half);
          expected.push_back(i < half ? normed[i] * cosine - normed[i + half] * sine
                                      : normed[i - half] * sine + normed[i] * cosine);
        }
      }
      return expected;
    }
    for (size_t i = 0; i < size; ++i) numbers.push_back(First(row, i));
    expected = Normed(numbers);
    if (job_.function == RowFunction::kNorm) return expected;
    for (size_t i = 0; i < size; ++i) expected[i] += Second(row, i);
    return expected;
  }

  std::mt19937 random_;
  RowJob job_;
  RowWords words_;
  std::vector<uint32_t> first_, second_, output_, weights_;
};

class RowsTest : public ::testing::TestWithParam<ArrayShape> {
 protected:
  // The largest error over numbers of rows that leave cores, columns or nothing idle.
  double WorstOf(RowFunction function, uint32_t size, uint32_t count, uint32_t num_heads = 1) {
    double worst = 0;
    for (const uint32_t num_rows : {1u, 4u, 5u, 37u, 131u}) {
      Rows rows(function, num_rows, size, count, num_heads);
      EXPECT_OK(rows.Run(GetParam())) << num_rows << " rows of " << size;
      EXPECT_TRUE(rows.GuardsHold()) << num_rows << " rows of " << size;
      worst = std::max(worst, rows.Error());
    }
    return worst;
  }
};

// Hidden widths of every Gemma 3, and some that are no multiple of 64.
TEST_P(RowsTest, NormsAreWithinTheBound) {
  double worst = 0, worst_added = 0;
  for (const auto& [size, count] :
       {std::pair{64u, 0u}, {128u, 70u}, {640u, 0u}, {1152u, 1142u}, {2560u, 0u}, {5376u, 0u}}) {
    worst = std::max(worst, WorstOf(RowFunction::kNorm, size, count));
    worst_added = std::max(worst_added, WorstOf(RowFunction::kNormAdd, size, count));
  }
  std::printf("norm %.5f, norm and sum %.1e\n", worst, worst_added);
  EXPECT_LE(worst, kBound);
  EXPECT_LE(worst_added, 1e-6) << "the residual stays float32";
}

TEST_P(RowsTest, HeadsAreNormedAndTurned) {
  for (const uint32_t head_dim : {64u, 128u, 256u}) {
    for (const uint32_t num_heads : {1u, 3u, 8u}) {
      EXPECT_LE(WorstOf(RowFunction::kRope, head_dim, 0, num_heads), kBound) << head_dim;
    }
  }
}

TEST_P(RowsTest, GegluIsWithinTheBound) {
  for (const uint32_t size : {64u, 192u, 6912u}) {
    EXPECT_LE(WorstOf(RowFunction::kGeglu, size, 0), kBound) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(AllArrays, RowsTest, ::testing::Values(kNpu1, kNpu4),
                         [](const auto& instance) {
                           return instance.param.generation == 3 ? "npu1" : "npu4";
                         });

// As many rows as a transaction takes, and a function after another on the same array.
TEST(RowJobTest, AsManyRowsAsATransactionTakes) {
  const uint32_t most = MaxJobRows(kNpu1);
  EXPECT_EQ(most, 1024u);
  Rows rows(RowFunction::kNorm, most, 64, 0);
  ASSERT_OK(rows.Run(kNpu1));
  EXPECT_LE(rows.Error(), kBound);
  ASSERT_OK_AND_ASSIGN(const Transaction code, BuildRows(rows.job()));
  EXPECT_LT(code.num_bytes(), 8192u) << "whatever the number of rows; docs/npu.md names the limit";
}

TEST(RowJobTest, JobsThatDoNotFitAreRefusedByName) {
  const auto refuses = [](const auto& change, const char* text) {
    Rows rows(RowFunction::kNormAdd, 5, 128, 0);
    change(rows.job());
    EXPECT_THAT(rows.Run(kNpu4), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refuses([](RowJob& job) { job.num_rows = 0; }, "0 rows");
  refuses([](RowJob& job) { job.num_rows = 2049; }, "2049 rows, must be 1 to 2048");
  refuses([](RowJob& job) { job.size = 96; }, "96 numbers");
  refuses([](RowJob& job) { job.size = 5440; }, "at most 5376");
  refuses([](RowJob& job) { job.count = 129; }, "129 of 128");
  refuses([](RowJob& job) { job.num_heads = 0; }, "0 heads");
  refuses([](RowJob& job) { job.second.stride = 127; }, "127 words apart");
  refuses([](RowJob& job) { job.output.stride = 1u << 28; }, "more than 4 GiB");
  refuses([](RowJob& job) { job.first.stride = 1u << 19; }, "step of");
}

// A buffer that ends too early: nothing is written.
TEST(RowJobTest, AnOperandThatEndsTooEarlyFails) {
  Rows rows(RowFunction::kNorm, 8, 64, 0);
  rows.job().num_rows = 12;
  EXPECT_THAT(rows.Run(kNpu4), testing::HasCode(absl::StatusCode::kOutOfRange));
}

}  // namespace
}  // namespace tandem::npu::emulator
