#include "tests/bench/step_case.h"

#include <gtest/gtest.h>

#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/common/testing/status_matchers.h"

namespace tandem::bench {
namespace {

TEST(StepCaseTest, ReadsDecodesAndPromptsWithAndWithoutDepth) {
  ASSERT_OK_AND_ASSIGN(const auto cases, ParseCases("d1,d32@8192,p2048,p100@7,d8x4@5"));
  ASSERT_EQ(cases.size(), 5u);
  EXPECT_FALSE(cases[1].is_prompt);
  EXPECT_EQ(cases[1].sequences, 32u);
  EXPECT_EQ(cases[1].depth, 8192u);
  EXPECT_EQ(cases[1].RowsPerStep(512), 32u);
  EXPECT_EQ(cases[1].EndLength(64), 8256u);
  EXPECT_TRUE(cases[2].is_prompt);
  EXPECT_EQ(cases[2].sequences, 1u);
  EXPECT_EQ(cases[2].NumSteps(512, 64), 4u);
  EXPECT_EQ(cases[3].RowsPerStep(512), 100u);
  EXPECT_EQ(cases[3].EndLength(64), 107u);
  EXPECT_EQ(cases[4].chain, 4u);
  EXPECT_EQ(cases[4].RowsPerStep(512), 32u);
  EXPECT_EQ(cases[4].Outputs(), 32u);
  EXPECT_EQ(cases[4].EndLength(64), 261u);
  for (const char* wrong : {"", "d", "d0", "x1", "d1@", "d1@2@3", "p-1", "d1,", "d99999999", "d8x",
                            "d8x0", "d8x2x2", "p8x2", "dx2"}) {
    EXPECT_THAT(ParseCases(wrong).status(), testing::HasCode(absl::StatusCode::kInvalidArgument))
        << wrong;
  }
}

TEST(StepCaseTest, LimitsCoverTheLargestCaseInEachRespect) {
  const ModelConfig config = testing::MakeConfig({.context_len = 4096, .sliding_window = 32});
  ASSERT_OK_AND_ASSIGN(const auto cases, ParseCases("d1@1000,d4,p300"));
  const testing::RunLimits limits = LimitsFor(config, cases, 64, 24);
  EXPECT_EQ(limits.max_sequences, 4u);
  EXPECT_EQ(limits.context_len, 1024u);
  EXPECT_EQ(limits.num_blocks[kGlobalGroup], 64u);
  // A window of 32 and 64 rows: 6 blocks and 2 more; four sequences of 24 tokens: 2 each.
  EXPECT_EQ(limits.num_blocks[kWindowGroup], 8u);
}

TEST(StepCaseTest, CountsEveryMatrixOnceAndTheWindowOfWindowLayers) {
  const ModelConfig config = testing::MakeConfig({});  // 3 layers, the second global
  const auto weights = testing::RandomWeightSet(config);
  ASSERT_OK_AND_ASSIGN(const auto cases, ParseCases("d2@100,p128"));
  uint64_t matrices = 0, bytes = 0;
  for (const PackedTensor& tensor : weights->tensors()) {
    for (const Shard& shard : tensor.shards) bytes += ShardBytes(tensor, shard);
    if (!IsNorm(tensor.role)) matrices += tensor.shape.rows * tensor.shape.cols;
  }
  const StepWork decode = WorkOf(cases[0], *weights, {.max_rows = 64}, 8);
  EXPECT_EQ(decode.weight_bytes, static_cast<double>(bytes));
  EXPECT_EQ(decode.flops, 2.0 * 2 * static_cast<double>(matrices));
  const double row = 2.0 * config.kv_dim() * 2;
  EXPECT_EQ(decode.kv_bytes, 2 * row * (104 + 2 * config.sliding_window));
  const StepWork prompt = WorkOf(cases[1], *weights, {.max_rows = 64}, 8);
  const double of_outputs =
      (static_cast<double>(config.vocab_size) + 3 * config.ffn_dim) * config.hidden_dim;
  EXPECT_EQ(prompt.flops,
            2.0 * (64 * (static_cast<double>(matrices) - of_outputs) + 0.5 * of_outputs));
}

}  // namespace
}  // namespace tandem::bench
