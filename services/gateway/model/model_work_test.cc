#include "services/gateway/model/model_work.h"

#include <gtest/gtest.h>

#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"

namespace tandem::gateway {
namespace {

TEST(ModelWorkTest, CountsProductsBytesAndPositionsOnce) {
  const ModelConfig config = tandem::testing::MakeConfig({.num_layers = 7});
  const auto weights = tandem::testing::RandomWeightSet(config);
  const v1::ModelWork work = WorkOf(config, weights->tensors(), DType::kF16);
  const uint64_t hidden = config.hidden_dim, ffn = config.ffn_dim, q = config.q_dim();
  const uint64_t layer = config.qkv_dim() * hidden + hidden * q + 3 * ffn * hidden;
  EXPECT_EQ(work.row_multiply_adds(), 7 * layer - 3 * ffn * hidden) << "the last Ffn is outputs'";
  EXPECT_EQ(work.output_multiply_adds(), uint64_t{config.vocab_size} * hidden + 3 * ffn * hidden);
  uint64_t bytes = 0;
  for (const PackedTensor& tensor : weights->tensors()) {
    for (const Shard& shard : tensor.shards) bytes += ShardBytes(tensor, shard);
  }
  EXPECT_EQ(work.step_weight_bytes() + work.head_weight_bytes(), bytes)
      << "a tied head is the embedding";
  EXPECT_EQ(WeightBytes(weights->tensors()), bytes) << "not the regions that hold them";
  uint64_t global_layers = 0;
  for (uint32_t i = 0; i < 7; ++i) global_layers += config.is_global(i) ? 1 : 0;
  EXPECT_EQ(work.global_kv_bytes(), global_layers * 4 * config.kv_dim());
  EXPECT_EQ(work.window_kv_bytes(), (7 - global_layers) * 4 * config.kv_dim());
  EXPECT_EQ(WorkOf(config, weights->tensors(), DType::kQ8_0).global_kv_bytes() * 32,
            work.global_kv_bytes() * 17);
  EXPECT_EQ(work.sliding_window(), config.sliding_window);
  EXPECT_GT(NumParameters(weights->tensors()), 7 * layer + uint64_t{config.vocab_size} * hidden);
}

TEST(ModelWorkTest, NamesFormatsByTheirBytes) {
  const auto matrix = [](WeightRole role, DType dtype, uint64_t rows) {
    return PackedTensor{
        .role = role, .shape = {rows, 256}, .shards = {{.num_rows = rows, .dtype = dtype}}};
  };
  EXPECT_EQ(
      WeightFormat(
          {matrix(WeightRole::kQkv, DType::kQ6_K, 32),
           matrix(WeightRole::kDown, DType::kQ4_K, 320),
           {.role = WeightRole::kFinalNorm, .shape = {1, 4096}, .shards = {{.num_rows = 1}}}}),
      "q4_k, q6_k");
}

}  // namespace
}  // namespace tandem::gateway
