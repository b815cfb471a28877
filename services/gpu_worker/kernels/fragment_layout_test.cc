#include "services/gpu_worker/kernels/fragment_layout.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace tandem::gpu {
namespace {

// Lane and element to 16 row + column.
using Place = std::function<uint32_t(uint32_t lane, uint32_t element)>;

std::vector<uint32_t> Positions(uint32_t elements, const Place& place) {
  std::vector<uint32_t> positions(32 * kMaxFragmentElements, ~0u);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t e = 0; e < elements; ++e) {
      positions[lane * kMaxFragmentElements + e] = place(lane, e);
    }
  }
  return positions;
}

// Rows first, as NVIDIA's driver has it.
uint32_t QuadPlace(uint32_t lane, uint32_t e) {
  return 16 * (lane / 4 + 8 * (e / 4)) + lane % 4 * 2 + e % 2 + 8 * (e / 2 % 2);
}

// Of sums that lie as no kernel knows them.
const std::vector<uint32_t> kOddSums(32 * kMaxFragmentElements);

TEST(FragmentLayoutTest, KnowsQuadsInEitherOrderOfPairs) {
  const auto rows_first = Positions(8, QuadPlace);
  EXPECT_EQ(ClassifyFragmentLayout(8, 8, rows_first, kOddSums),
            (FragmentLayout{MatrixPath::kQuads, 12, 10}));
  const auto columns_first = Positions(8, [](uint32_t lane, uint32_t e) {
    constexpr uint32_t kSwapped[] = {0, 1, 4, 5, 2, 3, 6, 7};
    return QuadPlace(lane, kSwapped[e]);
  });
  EXPECT_EQ(ClassifyFragmentLayout(8, 8, columns_first, rows_first),
            (FragmentLayout{MatrixPath::kQuads, 10, 12, true, 12, 10}));
  EXPECT_EQ(ClassifyFragmentLayout(8, 8, rows_first, columns_first),
            (FragmentLayout{MatrixPath::kQuads, 12, 10, true, 10, 12}));
}

TEST(FragmentLayoutTest, KnowsRowsThatBothHalvesHold) {
  const auto positions =
      Positions(16, [](uint32_t lane, uint32_t e) { return lane % 16 * 16 + e; });
  EXPECT_EQ(ClassifyFragmentLayout(16, 8, positions, kOddSums),
            FragmentLayout{.path = MatrixPath::kRows});
  const auto place = [](uint32_t lane, uint32_t e) { return (2 * e + lane / 16) * 16 + lane % 16; };
  EXPECT_EQ(ClassifyFragmentLayout(16, 8, positions, Positions(8, place)),
            (FragmentLayout{.path = MatrixPath::kRows, .sums_in_columns = true}));
  for (const uint32_t odd_lane : {0u, 16u, 31u}) {
    const auto odd = Positions(
        8, [&](uint32_t lane, uint32_t e) { return place(lane == odd_lane ? lane ^ 1 : lane, e); });
    EXPECT_EQ(ClassifyFragmentLayout(16, 8, positions, odd),
              FragmentLayout{.path = MatrixPath::kRows});
  }
}

TEST(FragmentLayoutTest, TakesSharedMemoryForAnyOther) {
  const auto halves_of_rows =
      Positions(8, [](uint32_t lane, uint32_t e) { return lane % 16 * 16 + lane / 16 * 8 + e; });
  EXPECT_EQ(ClassifyFragmentLayout(8, 8, halves_of_rows, kOddSums),
            FragmentLayout{.path = MatrixPath::kShared});
  for (const uint32_t odd_lane : {1u, 31u}) {
    const auto odd = Positions(8, [odd_lane](uint32_t lane, uint32_t e) {
      return QuadPlace(lane == odd_lane ? 0 : lane, e);
    });
    EXPECT_EQ(ClassifyFragmentLayout(8, 8, odd, kOddSums),
              FragmentLayout{.path = MatrixPath::kShared});
  }
  auto columns = Positions(16, [](uint32_t lane, uint32_t e) { return e * 16 + lane % 16; });
  EXPECT_EQ(ClassifyFragmentLayout(16, 8, columns, kOddSums),
            FragmentLayout{.path = MatrixPath::kShared});
}

TEST(FragmentLayoutTest, NeedsEightSumsALane) {
  EXPECT_EQ(ClassifyFragmentLayout(8, 4, Positions(8, QuadPlace), kOddSums), FragmentLayout{});
}

TEST(FragmentLayoutTest, KnowsNarrowMatricesThatLieAsTheKernelExpects) {
  const auto right = [](uint32_t lane, uint32_t e) {
    return 8 * (lane % 4 * 2 + e % 2 + 8 * (e / 2)) + lane / 4;
  };
  const auto sums = [](uint32_t lane, uint32_t e) {
    return 8 * (lane / 4 + 8 * (e / 2)) + lane % 4 * 2 + e % 2;
  };
  EXPECT_TRUE(HasNarrowLayout(4, 4, Positions(4, right), Positions(4, sums)));
  EXPECT_FALSE(HasNarrowLayout(8, 4, Positions(8, right), Positions(4, sums)));
  EXPECT_FALSE(HasNarrowLayout(4, 8, Positions(4, right), Positions(8, sums)));
  EXPECT_FALSE(HasNarrowLayout(4, 4, Positions(4, sums), Positions(4, sums)));
  EXPECT_FALSE(HasNarrowLayout(4, 4, Positions(4, right), Positions(4, right)));
  const auto odd_lane = [&](uint32_t lane, uint32_t e) { return sums(lane == 31 ? 0 : lane, e); };
  EXPECT_FALSE(HasNarrowLayout(4, 4, Positions(4, right), Positions(4, odd_lane)));
}

}  // namespace
}  // namespace tandem::gpu
