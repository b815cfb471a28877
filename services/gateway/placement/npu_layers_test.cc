#include "services/gateway/placement/npu_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tandem::gateway {
namespace {

constexpr ReferenceLoad kLoad = {.prompt_tokens = 1024, .answer_tokens = 256, .chunk_rows = 256};

// What a layer takes on each device, and the ends of the model on the GPU, in seconds for a part of a
// prompt; a step that decodes takes `decode` of it.
struct Machine {
  double gpu = 0.01, npu = 0.01, ends = 0.002, call = 0.0005;
  double decode_gpu = 0.01, decode_npu = 0.01;
};

PlacementCosts CostsOf(const Machine& machine, uint32_t num_layers, uint32_t npu_layers) {
  const auto step = [&](double gpu, double npu) {
    StepSeconds seconds{.device = {gpu * (machine.ends + (num_layers - npu_layers) * machine.gpu)}};
    if (npu_layers == 0) return seconds;
    seconds.device.push_back(npu * npu_layers * machine.npu);
    seconds.other = 3 * machine.call;
    return seconds;
  };
  const StepSeconds decode = step(machine.decode_gpu, machine.decode_npu);
  return {.prompt_rows = 256,
          .streams = 16,
          .depth = 1024,
          .prompt = step(1.0, 1.0),
          .lone = decode,
          .full = decode,
          .lanes = npu_layers > 0};
}

LayerCosts Measured(const Machine& machine, uint32_t num_layers = 32) {
  const uint32_t first = FirstNpuLayers(num_layers);
  return {.gpu = CostsOf(machine, num_layers, 0),
          .both = CostsOf(machine, num_layers, first),
          .npu_layers = first,
          .num_layers = num_layers};
}

double Seconds(const PlacementCosts& costs, const ReferenceLoad& load = kLoad) {
  return RequestSeconds(costs, load,
                        {.device = std::vector<double>(costs.lone.device.size(), 1.0)});
}

TEST(NpuLayersTest, CostsArePredictedForAnyNumber) {
  const Machine machine{.npu = 0.02, .decode_npu = 0.5};
  const LayerCosts costs = Measured(machine);
  for (const uint32_t layers : {1u, 8u, 20u, 31u}) {
    EXPECT_NEAR(Seconds(PredictCosts(costs, layers)), Seconds(CostsOf(machine, 32, layers)), 1e-9)
        << layers;
  }
}

TEST(NpuLayersTest, AnEqualNpuGetsHalfOfTheLayersForPrompts) {
  const uint32_t layers = BetterNpuLayers(Measured({.call = 0.0}), kLoad);
  EXPECT_NEAR(layers, 16.0, 1.0);
  // Four parts one after another, and five halves of one.
  const Machine machine{.ends = 0.0, .call = 0.0};
  EXPECT_NEAR(PromptRate(CostsOf(machine, 32, 16), kLoad, {.device = {1.0, 1.0}}),
              1024 / (0.32 + 3 * 0.16), 1e-6);
}

TEST(NpuLayersTest, ASlowOneGetsNoneAndOneThatIsRightIsNotTriedAgain) {
  EXPECT_EQ(BetterNpuLayers(Measured({.npu = 0.1, .decode_npu = 1.0}), kLoad), 0u);
  EXPECT_EQ(BetterNpuLayers(
                Measured({.npu = 0.03, .ends = 0.0, .call = 0.0, .decode_npu = 0.01 / 3}), kLoad),
            0u)
      << "a third as fast: 8 of 32";
}

TEST(NpuLayersTest, DecodingMayNotPay) {
  // Twice as fast at prompts, and it decodes at a tenth of the GPU's rate.
  const Machine machine{.npu = 0.005, .decode_npu = 2.0};
  const LayerCosts costs = Measured(machine);
  EXPECT_EQ(BetterNpuLayers(costs, {.prompt_tokens = 64, .answer_tokens = 1024}), 0u);
  EXPECT_GT(BetterNpuLayers(costs, {.prompt_tokens = 16384, .answer_tokens = 4}), 16u);
}

TEST(NpuLayersTest, OneLayerIsTheGpus) {
  EXPECT_EQ(FirstNpuLayers(2), 1u);
  EXPECT_EQ(FirstNpuLayers(62), 15u);
  const uint32_t layers = BetterNpuLayers(Measured({.npu = 0.0001, .call = 0.0}, 4), kLoad);
  EXPECT_EQ(layers, 3u);
}

// As of all placements (placement_choice_test): within 3% of the best of all numbers.
TEST(NpuLayersTest, TheNumberIsWithinThreePercentOfTheBestOfAll) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> speed(0.2, 5.0);
  int good = 0;
  for (int table = 0; table < 100; ++table) {
    const Machine machine{.gpu = 0.01 * speed(random),
                          .npu = 0.01 * speed(random),
                          .ends = 0.002 * speed(random),
                          .call = 0.0005 * speed(random),
                          .decode_gpu = 0.1 * speed(random),
                          .decode_npu = 0.1 * speed(random)};
    const LayerCosts costs = Measured(machine);
    double best = Seconds(costs.gpu);
    for (uint32_t layers = 1; layers < 32; ++layers) {
      best = std::min(best, Seconds(CostsOf(machine, 32, layers)));
    }
    double chosen = std::min(Seconds(costs.gpu), Seconds(costs.both));
    const uint32_t layers = BetterNpuLayers(costs, kLoad);
    if (layers > 0) chosen = std::min(chosen, Seconds(CostsOf(machine, 32, layers)));
    good += chosen <= 1.03 * best ? 1 : 0;
  }
  EXPECT_GE(good, 90);
}

}  // namespace
}  // namespace tandem::gateway
