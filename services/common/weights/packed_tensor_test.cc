#include "services/common/weights/packed_tensor.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

ModelConfig SmallConfig() {
  ModelConfig config;
  config.num_layers = 2;
  config.hidden_dim = 64;
  config.ffn_dim = 96;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 32;
  config.vocab_size = 100;
  return config;
}

PackedTensor Down() {
  PackedTensor tensor;
  tensor.role = WeightRole::kDown;
  tensor.layer_idx = 1;
  tensor.dtype = DType::kQ8_0;
  tensor.shape = {64, 96};
  tensor.shards = {{0, 40, 0, 0}, {40, 24, 0, 8192}};
  return tensor;
}

TEST(PackedTensorTest, PlanesAreAlignedAndDoNotOverlap) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const auto planes = PlanesOf(dtype, 7, 512);
    uint64_t payload = 0;
    for (size_t p = 0; p < planes.size(); ++p) {
      EXPECT_EQ(planes[p].offset % kPlaneAlignment, 0u);
      if (p > 0) {
        EXPECT_GE(planes[p].offset, planes[p - 1].offset + 7 * planes[p - 1].row_bytes);
      }
      payload += planes[p].row_bytes;
    }
    EXPECT_EQ(payload, RowBytes(dtype, 512)) << "planes hold exactly the block's bytes";
    EXPECT_GE(ShardBytes(dtype, 7, 512), 7 * RowBytes(dtype, 512));
  }
}

TEST(PackedTensorTest, AcceptsShardsThatCoverEveryRow) {
  EXPECT_TRUE(ValidatePackedTensor(Down(), SmallConfig(), {16384}).ok());
}

TEST(PackedTensorTest, RefusesGapsOverrunsAndWrongShapes) {
  const ModelConfig config = SmallConfig();
  PackedTensor tensor = Down();
  tensor.shards[1].first_row = 41;
  EXPECT_FALSE(ValidatePackedTensor(tensor, config, {16384}).ok());
  tensor = Down();
  tensor.shards[1].offset = ~uint64_t{4095};
  EXPECT_FALSE(ValidatePackedTensor(tensor, config, {16384}).ok());
  tensor = Down();
  tensor.shards.pop_back();
  EXPECT_EQ(ValidatePackedTensor(tensor, config, {16384}).message(),
            "layer 1 down: shards end at row 40 of 64");
  tensor = Down();
  tensor.shape.cols = 64;
  EXPECT_EQ(ValidatePackedTensor(tensor, config, {16384}).message(),
            "layer 1 down: expected [64, 96], manifest has [64, 64]");
  tensor = Down();
  tensor.layer_idx = 2;
  EXPECT_FALSE(ValidatePackedTensor(tensor, config, {16384}).ok());
}

}  // namespace
}  // namespace tandem
