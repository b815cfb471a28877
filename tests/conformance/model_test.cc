// Whole models: all stages together, and conditions that must not change their results.
#include <algorithm>
#include <random>

#include "services/common/reference/reference_model.h"
#include "tests/conformance/worker_suite.h"

namespace tandem::conformance {
namespace {

constexpr uint32_t kNumTokens = 64;

using ModelShapeTest = WorkerShapeSuite;

// Relative error of every position's logits.
void ExpectNearRows(std::span<const float> actual, std::span<const float> expected, size_t width,
                    double bound) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t at = 0; at < expected.size(); at += width) {
    ASSERT_TRUE(
        testing::IsNearInNorm(actual.subspan(at, width), expected.subspan(at, width), bound))
        << "position " << at / width;
  }
}

TEST_P(ModelShapeTest, LogitsMatchTheReferenceWhateverTheChunks) {
  if (!Takes(config(), DType::kBf16)) GTEST_SKIP() << "not offered: " << GetParam().name;
  const auto weights = testing::RandomWeightSet(config());
  const auto runner = RunWhole(weights, {});
  if (IsDeclined(runner.status())) GTEST_SKIP() << "declined: " << runner.status();
  ASSERT_OK(runner);
  const std::vector<uint32_t> tokens = MakeTokens(config(), kNumTokens);
  const std::vector<float> expected =
      reference::ReferenceModel(*weights, {.half_precision_exchange = true}).Logits(tokens);
  const double bound = NormBound(epsilon(), kRoundingsPerLayer * config().num_layers);
  for (const uint32_t chunk : {1u, 7u, 16u, 64u}) {
    SCOPED_TRACE(::testing::Message() << "chunk " << chunk);
    ASSERT_OK_AND_ASSIGN(const std::vector<float> logits,
                         LogitsOfSequence(**runner, tokens, chunk));
    ExpectNearRows(logits, expected, config().vocab_size, bound);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ModelShapeTest, ::testing::ValuesIn(testing::AwkwardConfigs()),
                         [](const auto& test) { return test.param.name; });

using ModelTest = WorkerSuite;

TEST_F(ModelTest, AQuantisedKvCacheAddsItsRoundingAndNoMore) {
  const auto& kv_dtypes = worker().description().kv_dtypes;
  if (std::ranges::find(kv_dtypes, DType::kQ8_0) == kv_dtypes.end()) {
    GTEST_SKIP() << "KV cache in float16 alone";
  }
  const ModelConfig config = testing::MakeConfig({.head_dim = 64});
  const auto weights = testing::RandomWeightSet(config);
  const std::vector<uint32_t> tokens = MakeTokens(config, kNumTokens);
  const std::vector<float> expected =
      reference::ReferenceModel(*weights, {.half_precision_exchange = true}).Logits(tokens);
  // k and v are rounded to 1 / 127 of their block's highest.
  const double bound =
      NormBound(std::max(epsilon(), 1.0 / 254), kRoundingsPerLayer * config.num_layers);
  for (const uint32_t chunk : {1u, 7u, 64u}) {
    SCOPED_TRACE(::testing::Message() << "chunk " << chunk);
    std::vector<float> logits[2];
    for (const DType dtype : {DType::kF16, DType::kQ8_0}) {
      ASSERT_OK_AND_ASSIGN(const auto runner, RunWhole(weights, {.kv_dtype = dtype}));
      ASSERT_OK_AND_ASSIGN(logits[dtype == DType::kQ8_0], LogitsOfSequence(*runner, tokens, chunk));
    }
    ExpectNearRows(logits[1], expected, config.vocab_size, bound);
    EXPECT_NE(logits[1], logits[0]) << "the cache is not quantised";
  }
}

TEST_F(ModelTest, NeighboursInTheBatchDoNotChangeASequence) {
  const ModelConfig config = testing::MakeConfig({});
  const auto weights = testing::RandomWeightSet(config);
  ASSERT_OK_AND_ASSIGN(const auto runner, RunWhole(weights, {}));
  const reference::ReferenceModel model(*weights, {.half_precision_exchange = true});
  const double bound = NormBound(epsilon(), kRoundingsPerLayer * config.num_layers);
  constexpr uint32_t kSequences = 8, kSteps = 30;
  StepBuilder steps(runner->limits());
  std::vector<std::vector<uint32_t>> tokens;
  std::vector<std::vector<float>> expected;
  for (uint32_t s = 0; s < kSequences; ++s) {
    steps.AddSequence();
    tokens.push_back(MakeTokens(config, 8 * kSteps, 100 + s));
    expected.push_back(model.Logits(tokens[s]));
  }
  std::mt19937 random(3);
  for (uint32_t step = 0; step < kSteps; ++step) {
    // One sequence feeds a chunk; the others a row each, in a shifted order, some not at all.
    steps.Begin();
    steps.set_want_logits(true);
    std::vector<std::pair<uint32_t, uint32_t>> outputs;  // sequence, position
    for (uint32_t i = 0; i < kSequences; ++i) {
      const uint32_t s = (i + step) % kSequences;
      const uint32_t rows = i == 0 ? 1 + random() % 7 : random() % 4 != 0;
      if (rows == 0) continue;
      const auto first = tokens[s].begin() + steps.Length(s);
      const uint32_t row = steps.AddRows(s, {first, first + rows});
      steps.AddOutput(row + rows - 1);
      outputs.push_back({s, steps.Length(s) - 1});
    }
    ASSERT_OK(runner->RunStep(steps.batch()));
    for (uint32_t o = 0; o < outputs.size(); ++o) {
      const auto& [s, position] = outputs[o];
      ASSERT_TRUE(testing::IsNearInNorm(
          runner->Logits(o),
          std::span(expected[s]).subspan(size_t{position} * config.vocab_size, config.vocab_size),
          bound))
          << "step " << step << " sequence " << s << " position " << position;
    }
  }
}

TEST_F(ModelTest, TheSameStepGivesTheSameBits) {
  const ModelConfig config = testing::MakeConfig({});
  ASSERT_OK_AND_ASSIGN(const auto runner, RunWhole(testing::RandomWeightSet(config), {}));
  const std::vector<uint32_t> tokens = MakeTokens(config, 40);
  ASSERT_OK_AND_ASSIGN(const auto first, LogitsOfSequence(*runner, tokens, 13));
  ASSERT_OK_AND_ASSIGN(const auto second, LogitsOfSequence(*runner, tokens, 13));
  EXPECT_EQ(first, second);
}

// What lane 0 holds is untouched by a step in lane 1.
TEST_F(ModelTest, LanesKeepApart) {
  const ModelConfig config = testing::MakeConfig({});
  ASSERT_OK_AND_ASSIGN(const auto runner,
                       RunWhole(testing::RandomWeightSet(config), {.num_lanes = 2}));
  StepBuilder steps(runner->limits());
  const auto run = [&](uint32_t lane) {
    steps.Begin();
    steps.set_want_logits(true);
    steps.AddOutput(steps.AddRows(steps.AddSequence(), MakeTokens(config, 5)) + 4);
    ASSERT_OK(runner->RunStep(steps.batch(), lane));
  };
  const auto lane_bytes = [&](uint32_t lane) {
    const uint64_t bytes = runner->exchange().layout.lane_bytes;
    const auto all = runner->exchange().mapping.bytes().subspan(lane * bytes, bytes);
    return std::vector<std::byte>(all.begin(), all.end());
  };
  run(0);
  const std::vector<std::byte> before = lane_bytes(0);
  run(1);
  EXPECT_EQ(lane_bytes(0), before);
  EXPECT_TRUE(std::ranges::equal(runner->Logits(0, 0), runner->Logits(0, 1)));
}

// Bits of a model do not depend on what was loaded before it.
TEST_F(ModelTest, LoadingAnotherModelReplacesTheFirst) {
  const ModelConfig first = testing::MakeConfig({});
  const ModelConfig second =
      testing::MakeConfig({.num_layers = 2, .hidden_dim = 96, .num_kv_heads = 1});
  const auto first_weights = testing::RandomWeightSet(first);
  const auto second_weights = testing::RandomWeightSet(second, {.seed = 9});
  const auto run = [&](const std::shared_ptr<const WeightSet>& weights) {
    auto runner = RunWhole(weights, {});
    EXPECT_OK(runner);
    return *LogitsOfSequence(**runner, MakeTokens(weights->config(), 20), 20);
  };
  const std::vector<float> before = run(first_weights);
  run(second_weights);
  EXPECT_EQ(run(first_weights), before);
}

}  // namespace
}  // namespace tandem::conformance
