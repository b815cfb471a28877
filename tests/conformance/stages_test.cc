// Each stage alone, all its tensors through the exchange region, at every count of rows at which
// kernels change.
#include "tests/conformance/stage_run.h"
#include "tests/conformance/worker_suite.h"

namespace tandem::conformance {
namespace {

constexpr uint32_t kRowCounts[] = {1, 2, 3, 5, 8, 9, 15, 16, 17, 33, 64, 67};
constexpr uint32_t kMaxRows = 67;
constexpr RunLimits kLimits = {
    .max_rows = kMaxRows, .max_outputs = kMaxRows, .max_logit_outputs = kMaxRows};

using StageShapeTest = WorkerShapeSuite;

TEST_P(StageShapeTest, EveryStageMatchesTheReferenceAtEveryRowCount) {
  if (!Takes(config(), DType::kBf16)) GTEST_SKIP() << "not offered: " << GetParam().name;
  const auto weights = testing::RandomWeightSet(config());
  const auto runner = RunStages(weights, kLimits);
  if (IsDeclined(runner.status())) GTEST_SKIP() << "declined: " << runner.status();
  ASSERT_OK(runner);
  CheckStages(**runner, StageCapture(*weights, kMaxRows), kRowCounts, {.epsilon = epsilon()});
}

INSTANTIATE_TEST_SUITE_P(Shapes, StageShapeTest, ::testing::ValuesIn(testing::AwkwardConfigs()),
                         [](const auto& test) { return test.param.name; });

class StageFormatTest : public WorkerSuite, public ::testing::WithParamInterface<DType> {};

// Matrices in shards of a few tiles, and a head of its own beside the embedding.
TEST_P(StageFormatTest, EveryStageReadsTheFormatAcrossShards) {
  const ModelConfig config =
      testing::MakeConfig({.num_layers = 2, .hidden_dim = 256, .ffn_dim = 512, .vocab_size = 203});
  if (!Takes(config, GetParam())) GTEST_SKIP() << "not offered: " << Traits(GetParam()).name;
  const auto weights = testing::RandomWeightSet(
      config,
      {.dtype = GetParam(), .separate_head = true, .seed = 5, .max_region_bytes = 128 << 10});
  ASSERT_OK_AND_ASSIGN(const auto runner, RunStages(weights, kLimits));
  CheckStages(*runner, StageCapture(*weights, kMaxRows), kRowCounts,
              {.epsilon = EpsilonWith(GetParam())});
}

INSTANTIATE_TEST_SUITE_P(Formats, StageFormatTest,
                         ::testing::ValuesIn(AllDTypes().begin(), AllDTypes().end()),
                         [](const auto& test) { return std::string(Traits(test.param).name); });

}  // namespace
}  // namespace tandem::conformance
