#include "services/loader/synthetic/synthetic_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "services/common/tensor/quant.h"

namespace tandem::loader {
namespace {

std::vector<DType> Formats() {
  std::vector<DType> formats;
  for (int i = 0; i < kNumDTypes; ++i) {
    if (CanSynthesize(static_cast<DType>(i))) formats.push_back(static_cast<DType>(i));
  }
  return formats;
}

class SyntheticTensorTest : public ::testing::TestWithParam<DType> {
 protected:
  std::vector<std::byte> Bytes(const SyntheticTensor& tensor, uint64_t offset, size_t size) {
    std::vector<std::byte> bytes(size + 1, std::byte{0xA5});
    tensor.Fill(offset, std::span(bytes).first(size));
    EXPECT_EQ(bytes.back(), std::byte{0xA5}) << "wrote past the end";
    bytes.pop_back();
    return bytes;
  }
};
INSTANTIATE_TEST_SUITE_P(Formats, SyntheticTensorTest, ::testing::ValuesIn(Formats()),
                         [](const auto& test) { return std::string(Traits(test.param).name); });

TEST_P(SyntheticTensorTest, AnyPieceIsThatPieceOfTheWhole) {
  const SyntheticTensor tensor = SyntheticTensor::Matrix(GetParam(), 42, 0.02f);
  const std::vector<std::byte> whole = Bytes(tensor, 0, 3001);
  for (const size_t piece : {1, 2, 7, 8, 64, 211, 3001}) {
    for (size_t at = 0; at < whole.size(); at += piece) {
      const size_t size = std::min(piece, whole.size() - at);
      const std::vector<std::byte> bytes = Bytes(tensor, at, size);
      ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), whole.begin() + static_cast<long>(at)))
          << size << " bytes at " << at;
    }
  }
  EXPECT_TRUE(Bytes(tensor, 5, 0).empty());
}

TEST_P(SyntheticTensorTest, NumbersHaveTheDeviationAskedForAndNoCommonOffset) {
  const DType dtype = GetParam();
  constexpr size_t kCols = 1 << 16;
  for (const float deviation : {0.0014f, 0.016f, 0.1f}) {
    SCOPED_TRACE(deviation);
    const SyntheticTensor tensor = SyntheticTensor::Matrix(dtype, 7, deviation);
    std::vector<float> numbers(kCols);
    DequantizeFileRow(dtype, Bytes(tensor, 0, RowBytes(dtype, kCols)), numbers);
    double sum = 0, squares = 0;
    for (const float x : numbers) {
      ASSERT_TRUE(std::isfinite(x));
      ASSERT_LT(std::abs(x), 8 * deviation);
      sum += x;
      squares += double{x} * x;
    }
    const double rms = std::sqrt(squares / kCols);
    // Plain formats hit the nearest power of two, others their scale within an eighth.
    EXPECT_GT(rms, deviation * (Traits(dtype).block_elements == 1 ? 0.70 : 0.85));
    EXPECT_LT(rms, deviation * (Traits(dtype).block_elements == 1 ? 1.42 : 1.15));
    // Signs are drawn by block of at most 256: the mean is within 5 deviations of 0.
    EXPECT_LT(std::abs(sum / kCols), 5 * rms / std::sqrt(kCols / 256.0));
  }
}

TEST_P(SyntheticTensorTest, OtherKeysGiveOtherNumbers) {
  const DType dtype = GetParam();
  const auto one = Bytes(SyntheticTensor::Matrix(dtype, MixKeys(1, 2), 0.02f), 0, 840);
  const auto two = Bytes(SyntheticTensor::Matrix(dtype, MixKeys(2, 1), 0.02f), 0, 840);
  size_t equal = 0;
  for (size_t i = 0; i < one.size(); ++i) equal += one[i] == two[i] ? 1 : 0;
  EXPECT_LT(equal, one.size() / 2);
}

TEST(SyntheticVectorTest, LiesWithinAQuarterOfItsCenter) {
  const SyntheticTensor tensor = SyntheticTensor::Vector(3, 30.0f);
  std::vector<float> numbers(1000);
  tensor.Fill(0, std::as_writable_bytes(std::span(numbers)));
  float low = numbers[0], high = numbers[0];
  for (const float x : numbers) {
    low = std::min(low, x);
    high = std::max(high, x);
  }
  EXPECT_GE(low, 22.5f);
  EXPECT_LT(low, 23.5f);
  EXPECT_LE(high, 37.5f);
  EXPECT_GT(high, 36.5f);
  float part = 0;
  tensor.Fill(4 * 500, std::as_writable_bytes(std::span(&part, 1)));
  EXPECT_EQ(part, numbers[500]);
}

}  // namespace
}  // namespace tandem::loader
