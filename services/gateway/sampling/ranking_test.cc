#include "services/gateway/sampling/ranking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace tandem::gateway {
namespace {

// Few distinct values make many ties.
std::vector<float> MakeRow(size_t size, int num_values, std::mt19937& random) {
  std::vector<float> row(size);
  for (float& logit : row) logit = static_cast<float>(static_cast<int>(random() % num_values)) / 8;
  return row;
}

std::vector<uint32_t> SortedTokens(const std::vector<float>& row) {
  std::vector<uint32_t> tokens(row.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  std::stable_sort(tokens.begin(), tokens.end(),
                   [&](uint32_t a, uint32_t b) { return row[a] > row[b]; });
  return tokens;
}

TEST(RankingTest, GivesEveryRankOfAnyRow) {
  std::mt19937 random(3);
  Ranking ranking;
  for (const size_t size : {1, 2, 127, 255, 256, 257, 511, 512, 513, 2048, 2049, 4099, 20011}) {
    for (const int num_values : {1, 5, 1'000'000}) {
      const std::vector<float> row = MakeRow(size, num_values, random);
      const std::vector<uint32_t> expected = SortedTokens(row);
      ranking.AssignAll(row);
      ASSERT_EQ(ranking.size(), size);
      for (size_t rank = 0; rank < size; ++rank) {
        ASSERT_EQ(ranking.At(rank).token, expected[rank]) << "size " << size << " rank " << rank;
        ASSERT_EQ(ranking.At(rank).logit, row[expected[rank]]);
      }
    }
  }
}

TEST(RankingTest, JumpsToARank) {
  std::mt19937 random(4);
  Ranking ranking;
  const std::vector<float> row = MakeRow(20011, 1000, random);
  const std::vector<uint32_t> expected = SortedTokens(row);
  for (const size_t rank : {0, 1, 255, 256, 257, 2047, 2048, 2049, 20010}) {
    ranking.AssignAll(row);
    EXPECT_EQ(ranking.At(rank).token, expected[rank]);
    EXPECT_EQ(ranking.At(0).token, expected[0]);
  }
}

TEST(RankingTest, SortsAFewTokens) {
  Ranking ranking;
  const RankedToken tokens[] = {{1.0f, 9}, {2.0f, 4}, {1.0f, 3}};
  ranking.Assign(tokens);
  ASSERT_EQ(ranking.size(), 3);
  EXPECT_EQ(ranking.At(0).token, 4);
  EXPECT_EQ(ranking.At(1).token, 3);
  EXPECT_EQ(ranking.At(2).token, 9);
}

}  // namespace
}  // namespace tandem::gateway
