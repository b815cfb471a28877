#include "services/common/reference/reference_worker.h"

#include <gtest/gtest.h>

#include "services/common/reference/reference_model.h"
#include "services/common/testing/compare.h"
#include "services/common/testing/kv_copy_case.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/plan_runner.h"
#include "services/common/testing/random_weights.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/step_builder.h"

namespace tandem::reference {
namespace {

using tandem::testing::PlanRunner;
using tandem::testing::StepBuilder;

std::vector<uint32_t> Tokens(const ModelConfig& config, uint32_t n) {
  std::vector<uint32_t> tokens(n);
  for (uint32_t i = 0; i < n; ++i) tokens[i] = (i * 37 + 11) % config.vocab_size;
  return tokens;
}

// Logits after every token of one sequence fed in chunks.
std::vector<float> LogitsByChunks(PlanRunner& runner, const std::vector<uint32_t>& tokens,
                                  uint32_t chunk) {
  StepBuilder steps(runner.limits());
  const uint32_t sequence = steps.AddSequence();
  std::vector<float> logits;
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const size_t end = std::min(tokens.size(), at + chunk);
    steps.Begin();
    steps.set_want_logits(true);
    steps.AddRows(sequence, {tokens.begin() + at, tokens.begin() + end});
    for (uint32_t row = 0; row < end - at; ++row) steps.AddOutput(row);
    EXPECT_OK(runner.RunStep(steps.batch()));
    for (uint32_t row = 0; row < end - at; ++row) {
      const std::span<const float> one = runner.Logits(row);
      logits.insert(logits.end(), one.begin(), one.end());
    }
  }
  return logits;
}

TEST(ReferenceWorkerTest, AgreesWithTheModelOverOneSequenceBitForBit) {
  for (const auto& [name, config] : tandem::testing::AwkwardConfigs()) {
    const auto weights = tandem::testing::RandomWeightSet(config);
    const ReferenceModel model(*weights, {.half_precision_exchange = true});
    const std::vector<uint32_t> tokens = Tokens(config, 61);
    const std::vector<float> expected = model.Logits(tokens);
    for (const uint32_t chunk : {1u, 7u, 61u}) {
      ReferenceWorker worker;
      ASSERT_OK_AND_ASSIGN(
          auto runner,
          PlanRunner::Create(weights, {&worker}, tandem::testing::WholeModel(config), {}));
      EXPECT_EQ(LogitsByChunks(*runner, tokens, chunk), expected) << name << " chunk " << chunk;
    }
  }
}

TEST(ReferenceWorkerTest, PlacementDoesNotChangeTheBits) {
  const ModelConfig config = tandem::testing::MakeConfig({});
  const auto weights = tandem::testing::RandomWeightSet(config);
  const std::vector<uint32_t> tokens = Tokens(config, 50);
  ReferenceWorker alone;
  ASSERT_OK_AND_ASSIGN(
      auto single, PlanRunner::Create(weights, {&alone}, tandem::testing::WholeModel(config), {}));
  ReferenceWorker gpu;
  ReferenceWorker npu(
      {.name = "npu0", .kind = DeviceKind::kNpu, .emulated = true, .stages = {StageKind::kAttend}});
  ASSERT_OK_AND_ASSIGN(auto hybrid, PlanRunner::CreatePlanned(weights, {&gpu, &npu},
                                                              {.npu = NpuPolicy::kEmulate}, {}));
  EXPECT_EQ(hybrid->segments().size(), 2 * config.num_layers + 1);
  EXPECT_EQ(LogitsByChunks(*hybrid, tokens, 9), LogitsByChunks(*single, tokens, 9));
}

TEST(ReferenceWorkerTest, PlacementDoesNotChangeTheBitsOfBfloat16PortsEither) {
  const ModelConfig config = tandem::testing::MakeConfig({});
  const auto weights = tandem::testing::RandomWeightSet(config);
  const std::vector<uint32_t> tokens = Tokens(config, 50);
  ReferenceWorker alone, gpu;
  ReferenceWorker npu(
      {.name = "npu0", .kind = DeviceKind::kNpu, .emulated = true, .stages = {StageKind::kAttend}});
  const auto run = [&](DType port_dtype, bool hybrid) {
    const tandem::testing::RunLimits limits = {.port_dtype = port_dtype};
    auto plan = MakePlan(config, {DType::kF32}, {gpu.description(), npu.description()},
                         {.npu = NpuPolicy::kEmulate});
    EXPECT_OK(plan);
    auto runner =
        hybrid ? PlanRunner::Create(weights, {&gpu, &npu}, plan->segments, limits)
               : PlanRunner::Create(weights, {&alone}, tandem::testing::WholeModel(config), limits);
    EXPECT_OK(runner);
    return LogitsByChunks(**runner, tokens, 9);
  };
  const std::vector<float> single = run(DType::kBf16, false);
  EXPECT_EQ(run(DType::kBf16, true), single);
  EXPECT_NE(single, run(DType::kF16, false));
}

TEST(ReferenceWorkerTest, HalfPrecisionExchangeCostsLittle) {
  const ModelConfig config = tandem::testing::MakeConfig({});
  const auto weights = tandem::testing::RandomWeightSet(config);
  const std::vector<uint32_t> tokens = Tokens(config, 50);
  const std::vector<float> exact = ReferenceModel(*weights).Logits(tokens);
  const std::vector<float> rounded =
      ReferenceModel(*weights, {.half_precision_exchange = true}).Logits(tokens);
  EXPECT_NE(rounded, exact);
  // Four roundings a layer, each 2^-11 of its tensor, handed on with a gain of order one.
  EXPECT_TRUE(tandem::testing::IsNearInNorm(rounded, exact,
                                            4 * config.num_layers * tandem::testing::kEpsilonF16));
}

TEST(ReferenceWorkerTest, RefusesAStageThatItDoesNotOffer) {
  const ModelConfig config = tandem::testing::MakeConfig({});
  ReferenceWorker npu({.name = "npu0", .stages = {StageKind::kAttend}});
  EXPECT_THAT(PlanRunner::Create(tandem::testing::RandomWeightSet(config), {&npu},
                                 tandem::testing::WholeModel(config), {})
                  .status(),
              tandem::testing::StatusIs(absl::StatusCode::kFailedPrecondition,
                                        ::testing::HasSubstr("npu0 cannot run Embed")));
}

TEST(ReferenceWorkerTest, LayersOnAnNpuDoNotChangeTheBits) {
  const ModelConfig config = tandem::testing::MakeConfig({.num_layers = 5});
  const auto weights = tandem::testing::RandomWeightSet(config);
  const std::vector<uint32_t> tokens = Tokens(config, 41);
  ReferenceWorker gpu({.name = "gpu0"});
  ReferenceWorker npu(
      {.name = "npu0",
       .kind = DeviceKind::kNpu,
       .stages = {StageKind::kQkv, StageKind::kAttend, StageKind::kOut, StageKind::kFfn}});
  ASSERT_OK_AND_ASSIGN(
      auto whole, PlanRunner::Create(weights, {&gpu}, tandem::testing::WholeModel(config), {}));
  const std::vector<float> expected = LogitsByChunks(*whole, tokens, 7);
  using Layers = std::vector<LayerRange>;
  for (const Layers& layers :
       {Layers{{"gpu0", 0, 1}, {"npu0", 2, 3}, {"gpu0", 4, 4}}, Layers{{"npu0", 0, 4}}}) {
    ASSERT_OK_AND_ASSIGN(
        auto split, PlanRunner::CreatePlanned(weights, {&gpu, &npu},
                                              {.npu = NpuPolicy::kRequire, .layers = layers}, {}));
    EXPECT_EQ(split->segments().size(), 3u);
    EXPECT_EQ(LogitsByChunks(*split, tokens, 7), expected);
  }
}

TEST(ReferenceWorkerTest, GoesOnWithCopiedKvBitForBit) {
  const ModelConfig config = tandem::testing::MakeConfig({});
  const auto weights = tandem::testing::RandomWeightSet(config);
  // Between plans of one and of several workers, whose layers lie in the area side by side.
  std::vector<tandem::Segment> layers;
  for (uint32_t ordinal = 0; ordinal < NumStages(config.num_layers); ++ordinal) {
    layers.push_back(tandem::testing::SingleStage(StageAt(ordinal, config.num_layers), config));
    layers.back().worker = ordinal / 6 % 2;
  }
  for (const DType dtype : {DType::kF16, DType::kQ8_0}) {
    const tandem::testing::RunLimits limits{
        .block_tokens = 5, .kv_dtype = dtype, .kv_area_bytes = 1 << 20};
    ReferenceWorker whole, first, second;
    ASSERT_OK_AND_ASSIGN(
        auto from,
        PlanRunner::Create(weights, {&whole}, tandem::testing::WholeModel(config), limits));
    ASSERT_OK_AND_ASSIGN(auto to, PlanRunner::Create(weights, {&first, &second}, layers, limits));
    ASSERT_OK_AND_ASSIGN(
        const tandem::testing::KvCopyResult result,
        RunKvCopyCase(*from, *to, {.prompt = Tokens(config, 43), .next = {3, 1, 4, 1, 5}}));
    EXPECT_EQ(result.copied, result.computed);
  }
}

}  // namespace
}  // namespace tandem::reference
