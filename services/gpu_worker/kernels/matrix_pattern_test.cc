#include "services/gpu_worker/kernels/matrix_pattern.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace tandem::gpu {
namespace {

// Lane and element to 16 row + column.
using Place = std::function<uint32_t(uint32_t lane, uint32_t element)>;

std::vector<uint32_t> Positions(uint32_t elements, const Place& place) {
  std::vector<uint32_t> positions(32 * kPatternMaxElements, ~0u);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t e = 0; e < elements; ++e) {
      positions[lane * kPatternMaxElements + e] = place(lane, e);
    }
  }
  return positions;
}

// Rows first, as NVIDIA's driver has it.
uint32_t QuadPlace(uint32_t lane, uint32_t e) {
  return 16 * (lane / 4 + 8 * (e / 4)) + lane % 4 * 2 + e % 2 + 8 * (e / 2 % 2);
}

// Of sums that lie as no kernel knows them.
const std::vector<uint32_t> kOddSums(32 * kPatternMaxElements);

TEST(MatrixPatternTest, KnowsQuadsInEitherOrderOfPairs) {
  const auto rows_first = Positions(8, QuadPlace);
  EXPECT_EQ(ClassifyMatrixPattern(8, 8, rows_first, kOddSums),
            (MatrixPattern{MatrixPath::kQuads, 12, 10}));
  const auto columns_first = Positions(8, [](uint32_t lane, uint32_t e) {
    constexpr uint32_t kSwapped[] = {0, 1, 4, 5, 2, 3, 6, 7};
    return QuadPlace(lane, kSwapped[e]);
  });
  EXPECT_EQ(ClassifyMatrixPattern(8, 8, columns_first, rows_first),
            (MatrixPattern{MatrixPath::kQuads, 10, 12, true, 12, 10}));
  EXPECT_EQ(ClassifyMatrixPattern(8, 8, rows_first, columns_first),
            (MatrixPattern{MatrixPath::kQuads, 12, 10, true, 10, 12}));
}

TEST(MatrixPatternTest, KnowsRowsThatBothHalvesHold) {
  const auto positions =
      Positions(16, [](uint32_t lane, uint32_t e) { return lane % 16 * 16 + e; });
  EXPECT_EQ(ClassifyMatrixPattern(16, 8, positions, kOddSums),
            MatrixPattern{.path = MatrixPath::kRows});
  const auto place = [](uint32_t lane, uint32_t e) { return (2 * e + lane / 16) * 16 + lane % 16; };
  EXPECT_EQ(ClassifyMatrixPattern(16, 8, positions, Positions(8, place)),
            (MatrixPattern{.path = MatrixPath::kRows, .column_sums = true}));
  for (const uint32_t odd_lane : {0u, 16u, 31u}) {
    const auto odd = Positions(
        8, [&](uint32_t lane, uint32_t e) { return place(lane == odd_lane ? lane ^ 1 : lane, e); });
    EXPECT_EQ(ClassifyMatrixPattern(16, 8, positions, odd),
              MatrixPattern{.path = MatrixPath::kRows});
  }
}

TEST(MatrixPatternTest, TakesSharedMemoryForAnyOther) {
  const auto halves_of_rows =
      Positions(8, [](uint32_t lane, uint32_t e) { return lane % 16 * 16 + lane / 16 * 8 + e; });
  EXPECT_EQ(ClassifyMatrixPattern(8, 8, halves_of_rows, kOddSums),
            MatrixPattern{.path = MatrixPath::kShared});
  for (const uint32_t odd_lane : {1u, 31u}) {
    const auto odd = Positions(8, [odd_lane](uint32_t lane, uint32_t e) {
      return QuadPlace(lane == odd_lane ? 0 : lane, e);
    });
    EXPECT_EQ(ClassifyMatrixPattern(8, 8, odd, kOddSums),
              MatrixPattern{.path = MatrixPath::kShared});
  }
  auto columns = Positions(16, [](uint32_t lane, uint32_t e) { return e * 16 + lane % 16; });
  EXPECT_EQ(ClassifyMatrixPattern(16, 8, columns, kOddSums),
            MatrixPattern{.path = MatrixPath::kShared});
}

TEST(MatrixPatternTest, NeedsEightSumsALane) {
  EXPECT_EQ(ClassifyMatrixPattern(8, 4, Positions(8, QuadPlace), kOddSums), MatrixPattern{});
}

TEST(MatrixPatternTest, KnowsSumsOfBytesThatLieAsTheKernelExpects) {
  const auto place = [](uint32_t lane, uint32_t e) {
    return 8 * (lane / 4 + 8 * (e / 2)) + lane % 4 * 2 + e % 2;
  };
  EXPECT_TRUE(HasByteSums(4, Positions(4, place)));
  EXPECT_FALSE(HasByteSums(8, Positions(8, place)));
  EXPECT_FALSE(HasByteSums(
      4, Positions(4, [&](uint32_t lane, uint32_t e) { return place(lane == 31 ? 0 : lane, e); })));
  EXPECT_FALSE(HasByteSums(4, Positions(4, [&](uint32_t lane, uint32_t e) {
                             return place(lane, (e & 1) * 2 + e / 2);
                           })));
}

}  // namespace
}  // namespace tandem::gpu
