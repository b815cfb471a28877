#include "services/gateway/speculation/chain_length.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace tandem::gateway {
namespace {

CostTable Costs(double first, double each, uint32_t most = 64) {
  CostTable costs;
  for (uint32_t rows = 1; rows <= most; ++rows) costs.StepTook(rows, first + each * (rows - 1));
  return costs;
}

TEST(ChainLengthTest, GuessesThatAreSureFillTheChainWhereRowsAreCheap) {
  const CostTable costs = Costs(0.010, 0.0001);
  const std::vector<float> sure(6, 0.95f);
  std::vector<uint32_t> lengths;
  const ChainOffer offer{sure};
  EXPECT_GT(ChooseLengths(costs, {.num_rows = 1}, {&offer, 1}, lengths), 300.0);
  EXPECT_EQ(lengths, std::vector<uint32_t>({6}));
}

TEST(ChainLengthTest, NothingIsVerifiedWhereItDoesNotPay) {
  const std::vector<float> doubtful(6, 0.1f);
  std::vector<uint32_t> lengths;
  const ChainOffer offer{doubtful};
  EXPECT_EQ(ChooseLengths(Costs(0.010, 0.002), {.num_rows = 1}, {&offer, 1}, lengths), 0.0);
  EXPECT_EQ(lengths, std::vector<uint32_t>({0}));
  // A large batch fills the device: a row costs as much as a sequence.
  const std::vector<float> good(6, 0.7f);
  const ChainOffer better{good};
  EXPECT_EQ(ChooseLengths(Costs(0.001, 0.001), {.num_rows = 32}, {&better, 1}, lengths), 0.0);
}

TEST(ChainLengthTest, TheGapAndWaitsAreWeighed) {
  CostTable costs = Costs(0.001, 0.0);
  const std::vector<float> one = {0.5f};
  const ChainOffer offer{one};
  std::vector<uint32_t> lengths;
  EXPECT_GT(ChooseLengths(costs, {.num_rows = 1}, {&offer, 1}, lengths), 0.0);
  EXPECT_EQ(ChooseLengths(costs, {.num_rows = 1, .extra_seconds = 0.001}, {&offer, 1}, lengths),
            0.0);
  for (int i = 0; i < 100; ++i) costs.GapTook(0.001);
  EXPECT_EQ(ChooseLengths(costs, {.num_rows = 1}, {&offer, 1}, lengths), 0.0);
  EXPECT_GT(ChooseLengths(costs, {.num_rows = 1, .plain_gap = 0.001}, {&offer, 1}, lengths), 0.0);
}

// A device that computes rows in blocks: 25 rows take as long as 32.
TEST(ChainLengthTest, FindsTheLargestStepOfABlockInFewTries) {
  const auto took = [](uint32_t rows) {
    return rows <= 8 ? 0.0074 : rows <= 16 ? 0.0088 : rows <= 32 ? 0.011 : 0.017;
  };
  const std::vector<float> likely(15, 0.7f);
  const std::vector<ChainOffer> offers(8, ChainOffer{likely});
  for (const bool has_seen_others : {false, true}) {
    CostTable costs;
    for (int step = 0; step < 3; ++step) costs.StepTook(8, took(8));
    if (has_seen_others) {
      for (const uint32_t rows : {25u, 38u}) costs.StepTook(rows, took(rows));
    }
    std::vector<uint32_t> lengths;
    std::set<uint32_t> tried;
    uint32_t rows = 0;
    for (int step = 0; step < 30; ++step) {
      ChooseLengths(costs, {.num_rows = 8}, offers, lengths);
      rows = 8;
      for (const uint32_t length : lengths) rows += length;
      costs.StepTook(rows, took(rows));
      tried.insert(rows);
    }
    EXPECT_EQ(rows, 32u);
    EXPECT_LE(tried.size(), 7u);
  }
}

TEST(ChainLengthTest, NoOtherLengthsPromiseMore) {
  std::mt19937 random(8);
  std::uniform_real_distribution<double> unit(0.0, 1.0);
  for (int round = 0; round < 300; ++round) {
    CostTable costs;
    double seconds = 0.001 + unit(random) * 0.01;
    for (uint32_t rows = 1; rows <= 40; ++rows) {
      costs.StepTook(rows, seconds);
      if (random() % 3 == 0) seconds += unit(random) * 0.003;
    }
    if (random() % 2 == 0) costs.GapTook(unit(random) * 0.001);
    const StepTerms terms{.num_rows = 2, .plain_gap = unit(random) * 0.001};
    std::vector<float> probabilities[2];
    for (auto& chain : probabilities) {
      for (uint32_t i = random() % 6; i > 0; --i) {
        chain.push_back(static_cast<float>(unit(random)));
      }
    }
    const ChainOffer offers[2] = {{probabilities[0]}, {probabilities[1], unit(random)}};
    std::vector<uint32_t> lengths;
    const double rate = ChooseLengths(costs, terms, offers, lengths);
    double best = kLeastGain * 2 / (costs.Step(2) + terms.plain_gap);
    bool any = false;
    for (size_t a = 0; a <= probabilities[0].size(); ++a) {
      for (size_t b = 0; b <= probabilities[1].size(); ++b) {
        if (a + b == 0) continue;
        double tokens = 2;
        for (size_t o = 0; o < 2; ++o) {
          double yield = offers[o].start;
          for (size_t i = 0; i < (o == 0 ? a : b); ++i) {
            yield *= static_cast<double>(probabilities[o][i]);
            tokens += yield;
          }
        }
        const auto rows = static_cast<uint32_t>(2 + a + b);
        const double promised = tokens / (costs.Step(rows) + costs.Gap());
        if (promised <= best * (1 + 1e-12)) continue;
        best = promised;
        any = true;
      }
    }
    ASSERT_EQ(rate > 0.0, any) << "round " << round;
    if (any) {
      ASSERT_NEAR(rate, best, 1e-9 * best) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace tandem::gateway
