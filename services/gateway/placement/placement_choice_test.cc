#include "services/gateway/placement/placement_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;

constexpr ReferenceLoad kOneStream = {.prompt_tokens = 1024, .answer_tokens = 256};
constexpr StepShape kDecode = {.decodes = true, .rows = 1, .depth = 1000};
const absl::Time kStart = absl::FromUnixSeconds(1'000'000);

PlacementCosts Costs(StepSeconds prompt, StepSeconds lone, StepSeconds full) {
  return {.prompt_rows = 256,
          .streams = 16,
          .depth = 1024,
          .prompt = std::move(prompt),
          .lone = std::move(lone),
          .full = std::move(full)};
}

// Attention on the NPU, and the GPU alone: 4 + 4 + 0.5 and 10 ms a token.
std::vector<PlacementCandidate> GpuAndNpu() {
  return {{.description = "Attend on npu0",
           .workers = {"gpu0", "npu0"},
           .costs = Costs({.device = {0.2, 0.2}}, {.device = {0.004, 0.004}, .other = 0.0005},
                          {.device = {0.006, 0.030}})},
          {.description = "everything on gpu0",
           .workers = {"gpu0"},
           .costs = Costs({.device = {0.8}}, {.device = {0.010}}, {.device = {0.020}})}};
}

class PlacementChoiceTest : public ::testing::Test {
 protected:
  explicit PlacementChoiceTest(Favour favour = Favour::kLatency) : choice_({}, favour) {
    choice_.SetCandidates(GpuAndNpu(), kOneStream);
  }
  void Begin(size_t candidate) { choice_.Begin(candidate, now_); }
  // Steps of `shape`, each `seconds` long; the move that is due, if one is.
  std::optional<size_t> Steps(const StepShape& shape, const StepSeconds& seconds,
                              absl::Duration time) {
    const absl::Time end = now_ + time;
    while (now_ < end) {
      now_ += absl::Milliseconds(100);
      choice_.StepRan(shape, seconds, now_);
      if (const auto move = choice_.Move(now_)) return move;
    }
    return std::nullopt;
  }
  // Of steps that decode one stream, with times by worker.
  std::optional<size_t> Steps(const std::vector<double>& seconds, absl::Duration time) {
    return Steps(kDecode, {.device = seconds}, time);
  }

  PlacementChoice choice_;
  absl::Time now_ = kStart;
};

TEST_F(PlacementChoiceTest, TakesTheOneThatAnswersSoonest) {
  EXPECT_EQ(choice_.Best(now_), 0u);
  EXPECT_NEAR(choice_.DecodeRate(0), 1.0 / 0.0085, 1e-6);
  EXPECT_NEAR(choice_.PromptRate(0), 640.0, 1e-6);
  EXPECT_NEAR(choice_.DecodeRate(1), 100.0, 1e-6);
}

TEST_F(PlacementChoiceTest, ManyStreamsMayWantAnother) {
  ReferenceLoad load = kOneStream;
  load.streams = 16;
  choice_.SetCandidates(GpuAndNpu(), load);
  EXPECT_EQ(choice_.Best(now_), 0u) << "the prompts decide";
  load.prompt_tokens = 16;
  choice_.SetCandidates(GpuAndNpu(), load);
  EXPECT_EQ(choice_.Best(now_), 1u);
  EXPECT_NEAR(choice_.DecodeRate(1), 800.0, 1e-6);
}

TEST_F(PlacementChoiceTest, WhatWasNotTriedIsTriedFirst) {
  std::vector<PlacementCandidate> candidates = GpuAndNpu();
  candidates[1].costs.reset();
  choice_.SetCandidates(candidates, kOneStream);
  EXPECT_EQ(choice_.Untried(), 1u);
  choice_.SetCosts(1, *GpuAndNpu()[1].costs);
  EXPECT_EQ(choice_.Untried(), std::nullopt);
}

TEST_F(PlacementChoiceTest, LanesNeitherHideASlowDeviceNorMakeOneByWaiting) {
  constexpr StepShape kLane = {.decodes = true, .rows = 1, .depth = 1000, .overlaps = true};
  Begin(0);
  EXPECT_EQ(Steps(kLane, {.device = {0.005, 0.005}, .other = 0.001}, absl::Seconds(10)),
            std::nullopt);
  EXPECT_EQ(Steps(kLane, {.device = {0.005, 0.005}, .other = 0.1}, absl::Minutes(2)), std::nullopt);
  EXPECT_EQ(Steps(kLane, {.device = {0.005, 0.02}, .other = 0.001}, absl::Minutes(2)), 1u);
}

TEST_F(PlacementChoiceTest, StaysWhileNothingChanges) {
  Begin(0);
  EXPECT_EQ(Steps({0.004, 0.004}, absl::Minutes(10)), std::nullopt);
  EXPECT_NEAR(choice_.SlowdownOf(0, now_), 1.0, 0.01);
  EXPECT_EQ(choice_.SlowdownOf(1, now_), 0.0) << "never ran";
}

TEST_F(PlacementChoiceTest, LeavesADeviceThatHasBecomeSlowAndComesBack) {
  Begin(0);
  EXPECT_EQ(Steps({0.004, 0.004}, absl::Minutes(1)), std::nullopt);
  const absl::Time slow = now_;
  ASSERT_EQ(Steps({0.004, 0.040}, absl::Minutes(10)), 1u);
  EXPECT_GE(now_ - slow, absl::Seconds(20));
  EXPECT_LT(now_ - slow, absl::Seconds(25));
  EXPECT_THAT(choice_.Explain(0, now_), HasSubstr("times slower"));
  Begin(1);
  const absl::Time left = now_;
  ASSERT_EQ(Steps({0.010}, absl::Minutes(10)), 0u) << "it counts as restored";
  EXPECT_GE(now_ - left, absl::Seconds(80));
  EXPECT_LT(now_ - left, absl::Seconds(85));
  Begin(0);
  EXPECT_EQ(Steps({0.004, 0.004}, absl::Minutes(10)), std::nullopt);
}

TEST_F(PlacementChoiceTest, TriesASlowDeviceEverMoreSeldom) {
  Begin(0);
  Steps({0.004, 0.004}, absl::Minutes(1));
  absl::Duration last = absl::ZeroDuration();
  for (int visit = 0; visit < 8; ++visit) {
    ASSERT_EQ(Steps({0.004, 0.040}, absl::Minutes(10)), 1u);
    Begin(1);
    const absl::Time left = now_;
    ASSERT_EQ(Steps({0.010}, absl::Hours(2)), 0u);
    EXPECT_GE(now_ - left, std::min(absl::Hours(1), 1.9 * (last - absl::Seconds(20))));
    last = now_ - left;
    Begin(0);
  }
  EXPECT_LE(last, absl::Hours(1) + absl::Seconds(25));
}

TEST_F(PlacementChoiceTest, ADeviceOfBothThatIsSlowMovesNothing) {
  Begin(1);
  Steps({0.010}, absl::Minutes(1));
  choice_.SetCandidates(GpuAndNpu(), kOneStream);
  Begin(0);
  EXPECT_EQ(Steps({0.004, 0.004}, absl::Minutes(1)), std::nullopt);
  // A GPU at 80%: 10 ms become 12.5, and 8.5 become 9.5.
  EXPECT_EQ(Steps({0.005, 0.004}, absl::Minutes(10)), std::nullopt);
}

TEST_F(PlacementChoiceTest, AShortTroubleMovesNothing) {
  Begin(0);
  Steps({0.004, 0.004}, absl::Minutes(1));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Steps({0.004, 0.040}, absl::Seconds(10)), std::nullopt);
    EXPECT_EQ(Steps({0.004, 0.004}, absl::Seconds(20)), std::nullopt);
  }
}

TEST_F(PlacementChoiceTest, ALittleBetterIsNotWorthAMove) {
  std::vector<PlacementCandidate> candidates = GpuAndNpu();
  candidates[1].costs = Costs({.device = {0.38}}, {.device = {0.0081}}, {.device = {0.02}});
  choice_.SetCandidates(candidates, kOneStream);
  EXPECT_EQ(choice_.Best(now_), 1u);
  Begin(0);
  EXPECT_EQ(choice_.Best(now_), 0u);
}

TEST_F(PlacementChoiceTest, AWorkerThatGoesTakesItsPlacementsAlong) {
  Begin(0);
  std::vector<PlacementCandidate> left = {GpuAndNpu()[1]};
  choice_.SetCandidates(left, kOneStream);
  EXPECT_EQ(choice_.in_force(), std::nullopt);
  EXPECT_EQ(choice_.Best(now_), 0u);
  Begin(0);
  choice_.SetCandidates(GpuAndNpu(), kOneStream);
  EXPECT_EQ(choice_.in_force(), 1u);
  EXPECT_EQ(choice_.Best(now_), 0u) << "more than a tenth better";
}

// The same with power: the GPU alone takes longer and draws less.
std::vector<PlacementCandidate> WithPower(const std::vector<double>& both, double gpu) {
  std::vector<PlacementCandidate> candidates = GpuAndNpu();
  for (PlacementCandidate& candidate : candidates) {
    for (StepSeconds* step :
         {&candidate.costs->prompt, &candidate.costs->lone, &candidate.costs->full}) {
      step->watts = candidate.workers.size() == 2 ? both : std::vector<double>{gpu};
    }
  }
  return candidates;
}

class EnergyChoiceTest : public PlacementChoiceTest {
 protected:
  EnergyChoiceTest() : PlacementChoiceTest(Favour::kEnergy) {
    choice_.SetCandidates(WithPower({100.0, 20.0}, 50.0), kOneStream);
  }
};

TEST_F(EnergyChoiceTest, TakesTheOneThatAnswersWithTheLeastEnergy) {
  EXPECT_EQ(choice_.Best(now_), 1u);
  EXPECT_EQ(choice_.Ranked(now_), (std::vector<size_t>{1, 0}));
  EXPECT_NEAR(choice_.TokenJoules(0), 120.0 * 0.0085, 1e-9);
  EXPECT_NEAR(choice_.TokenJoules(1), 0.5, 1e-9);
  EXPECT_THAT(choice_.Explain(1, now_), HasSubstr(", 0.5 J a token"));
  EXPECT_EQ(choice_.EnergyNotice(), "");
  PlacementChoice by_time({});
  by_time.SetCandidates(WithPower({100.0, 20.0}, 50.0), kOneStream);
  EXPECT_EQ(by_time.Best(now_), 0u);
  EXPECT_EQ(by_time.EnergyNotice(), "");
}

TEST_F(EnergyChoiceTest, PromptsCountToo) {
  std::vector<PlacementCandidate> candidates = WithPower({100.0, 20.0}, 50.0);
  candidates[1].costs->prompt.watts = {500.0};
  choice_.SetCandidates(candidates, kOneStream);
  EXPECT_EQ(choice_.Best(now_), 0u) << "1024 tokens of prompt beside 256 of answer";
}

TEST_F(EnergyChoiceTest, WithoutThePowerOfADeviceTheFastestIsTaken) {
  choice_.SetCandidates(WithPower({100.0, 0.0}, 50.0), kOneStream);
  EXPECT_EQ(choice_.Best(now_), 0u);
  EXPECT_EQ(choice_.TokenJoules(0), 0.0);
  EXPECT_NEAR(choice_.TokenJoules(1), 0.5, 1e-9);
  EXPECT_EQ(choice_.EnergyNotice(),
            "the power of npu0 cannot be read, so the fastest placement is used, whatever its "
            "energy");
  choice_.SetCandidates(WithPower({0.0, 0.0}, 0.0), kOneStream);
  EXPECT_EQ(choice_.Best(now_), 0u);
  EXPECT_THAT(choice_.EnergyNotice(), HasSubstr("the power of gpu0 and npu0"));
}

TEST_F(EnergyChoiceTest, TwoOrMoreWhoseEnergyIsKnownAreCompared) {
  std::vector<PlacementCandidate> candidates = WithPower({100.0, 20.0}, 50.0);
  candidates.push_back(candidates[0]);
  candidates[2].description = "everything on npu1";
  candidates[2].workers = {"gpu0", "npu1"};
  candidates[2].costs->lone = {.device = {0.001, 0.001}, .watts = {1.0, 0.0}};
  choice_.SetCandidates(candidates, kOneStream);
  EXPECT_EQ(choice_.Best(now_), 1u);
  EXPECT_EQ(choice_.Ranked(now_), (std::vector<size_t>{1, 0, 2}));
  EXPECT_EQ(choice_.EnergyNotice(),
            "the power of npu1 cannot be read, so placements that use it are not weighed by "
            "energy");
}

TEST_F(EnergyChoiceTest, ADeviceThatIsNotUsedNeedsNoPower) {
  std::vector<PlacementCandidate> candidates = WithPower({100.0, 20.0}, 50.0);
  PlacementCosts& costs = *candidates[1].costs;
  candidates[1].workers.push_back("npu0");
  for (StepSeconds* step : {&costs.prompt, &costs.lone, &costs.full}) {
    step->device.push_back(0.0);
    step->watts.push_back(0.0);
  }
  choice_.SetCandidates(candidates, kOneStream);
  EXPECT_EQ(choice_.Best(now_), 1u);
  EXPECT_EQ(choice_.EnergyNotice(), "");
}

TEST_F(EnergyChoiceTest, StepsWithoutDeviceTimesNeedThePowerOfAllWorkers) {
  std::vector<PlacementCandidate> candidates = WithPower({100.0, 20.0}, 50.0);
  candidates[1].costs->lone = {.device = {0.0}, .other = 0.01, .watts = {0.0}};
  choice_.SetCandidates(candidates, kOneStream);
  EXPECT_EQ(choice_.Best(now_), 0u);
  EXPECT_THAT(choice_.EnergyNotice(), HasSubstr("the power of gpu0 cannot be read"));
}

TEST_F(EnergyChoiceTest, ServingMovesWhenAnotherTakesLessEnergyAndNotForTime) {
  choice_.SetCandidates(WithPower({20.0, 5.0}, 50.0), kOneStream);
  Begin(0);
  EXPECT_EQ(Steps({0.004, 0.004}, absl::Minutes(1)), std::nullopt);
  // 16.5 ms at 25 W take less energy than 10 ms at 50 W.
  EXPECT_EQ(Steps({0.004, 0.012}, absl::Minutes(5)), std::nullopt);
  EXPECT_GT(choice_.SlowdownOf(0, now_), 1.5);
  EXPECT_EQ(Steps({0.004, 0.080}, absl::Minutes(5)), 1u);
}

TEST(LanesForTest, MoreThanOneWhereStepsGrowWithTheirRowsOnSeveralDevices) {
  const auto costs = [](std::vector<double> lone, std::vector<double> full, double other = 0.0) {
    const std::vector<double> prompt(lone.size(), 1.0);
    return Costs({.device = prompt}, {.device = std::move(lone), .other = other},
                 {.device = std::move(full), .other = other});
  };
  // 16 streams take as long as one: two steps would read the weights twice.
  EXPECT_EQ(LanesFor(costs({0.010, 0.010}, {0.010, 0.010}), 16), 1u);
  EXPECT_EQ(LanesFor(costs({0.001, 0.001}, {0.016, 0.016}), 16), 2u);
  EXPECT_EQ(LanesFor(costs({0.001, 0.001}, {0.016, 0.016}), 2), 2u);
  EXPECT_EQ(LanesFor(costs({0.001, 0.001}, {0.016, 0.016}), 1), 1u);
  // One device is nearly all of the time.
  EXPECT_EQ(LanesFor(costs({0.010, 0.0005}, {0.012, 0.001}), 16), 1u);
  EXPECT_EQ(LanesFor(costs({0.001}, {0.016}), 16), 1u);
  // As many as there are devices.
  const std::vector<double> one = {0.001, 0.001, 0.001, 0.001}, all = {0.016, 0.016, 0.016, 0.016};
  EXPECT_EQ(LanesFor(costs({0.001, 0.001, 0.001}, {0.016, 0.016, 0.016}), 12), 3u);
  EXPECT_EQ(LanesFor(costs(one, all), 16), 4u);
  EXPECT_EQ(LanesFor(costs(one, all), 3), 3u) << "no more than streams";
  // A third is on its way between two devices.
  EXPECT_EQ(LanesFor(costs({0.001, 0.001}, {0.016, 0.016}, 0.004), 12), 3u);
}

TEST(LanesTest, StepsOfManyStreamsOverlap) {
  PlacementCosts costs = Costs({.device = {0.2, 0.1}, .other = 0.1}, {.device = {0.001, 0.001}},
                               {.device = {0.016, 0.016}});
  const ReferenceLoad many = {.prompt_tokens = 1024, .streams = 16, .chunk_rows = 256};
  const ReferenceLoad one = {.prompt_tokens = 1024, .chunk_rows = 512};
  const Slowdowns none = {.device = {1.0, 1.0}}, slow = {.device = {1.0, 4.0}};
  EXPECT_NEAR(PromptRate(costs, many, none), 256 / 0.4, 1e-9);
  EXPECT_NEAR(DecodeRate(costs, many, none), 16 / 0.032, 1e-9);
  costs.lanes = true;
  EXPECT_NEAR(PromptRate(costs, many, none), 256 / 0.2, 1e-9) << "the GPU is always busy";
  EXPECT_NEAR(PromptRate(costs, many, slow), 256 / 0.4, 1e-9) << "then the NPU is";
  EXPECT_NEAR(PromptRate(costs, one, none), 1024 / (2 * 0.4 + 2 * 0.2), 1e-9);
  // Eight streams take 8 ms on each device.
  EXPECT_NEAR(DecodeRate(costs, many, none), 16 / 0.016, 1e-9);
  EXPECT_NEAR(DecodeRate(costs, one, none), 1 / 0.002, 1e-9);
  // Three chunks under way on three devices.
  costs.prompt = {.device = {0.1, 0.1, 0.1}, .other = 0.03};
  const Slowdowns three = {.device = {1.0, 1.0, 1.0}};
  EXPECT_NEAR(PromptRate(costs, many, three), 256 / 0.11, 1e-9);
}

// Devices of random speeds; steps take what the tables say, with an error.
TEST(PlacementTablesTest, TheChoiceIsWithinThreePercentOfTheBestOfAll) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> speed(0.2, 5.0), error(0.99, 1.01);
  int good = 0;
  for (int table = 0; table < 100; ++table) {
    const double gpu = 0.01 * speed(random), attend = 0.004 * speed(random);
    const double npu = 0.004 * speed(random), out = 0.003 * speed(random);
    const double npu_out = 0.003 * speed(random), hop = 0.0005 * speed(random);
    const auto step = [&](double scale) {
      return std::vector<StepSeconds>{
          {.device = {scale * (gpu + out), scale * npu}, .other = hop},
          {.device = {scale * gpu, scale * (npu + npu_out)}, .other = hop},
          {.device = {scale * (gpu + out + attend)}}};
    };
    const auto exact = [&](size_t i) { return Costs(step(20)[i], step(1)[i], step(3)[i]); };
    const auto measured = [&](size_t i) {
      PlacementCosts costs = exact(i);
      for (StepSeconds* seconds : {&costs.prompt, &costs.lone, &costs.full}) {
        for (double& device : seconds->device) device *= error(random);
      }
      return costs;
    };
    std::vector<PlacementCandidate> candidates = {{"attend", {"gpu0", "npu0"}, measured(0)},
                                                  {"out", {"gpu0", "npu0"}, measured(1)},
                                                  {"gpu", {"gpu0"}, measured(2)}};
    PlacementChoice choice{{}};
    choice.SetCandidates(candidates, kOneStream);
    const auto seconds = [&](size_t i) {
      return RequestSeconds(exact(i), kOneStream,
                            {.device = std::vector<double>(candidates[i].workers.size(), 1.0)});
    };
    const double best = std::min({seconds(0), seconds(1), seconds(2)});
    good += seconds(choice.Best(kStart)) <= 1.03 * best ? 1 : 0;
  }
  EXPECT_EQ(good, 100);
}

}  // namespace
}  // namespace tandem::gateway
