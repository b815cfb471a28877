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
  tensor.shape = {64, 96};
  tensor.shards = {{0, 32, 0, 0, DType::kQ8_0}, {32, 32, 0, 8192, DType::kQ8_0}};
  return tensor;
}

TEST(PackedTensorTest, PlanesAreAlignedAndFollowEachOther) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const auto planes = PlanesOf(dtype, 37, 512);
    ASSERT_LE(planes.size(), static_cast<size_t>(kMaxPlanes));
    uint64_t end = 0;
    for (const Plane& plane : planes) {
      EXPECT_EQ(plane.offset % kPlaneAlignment, 0u);
      EXPECT_GE(plane.offset, end);
      EXPECT_LT(plane.offset, end + kPlaneAlignment);
      EXPECT_EQ(plane.pieces_per_row * plane.piece.elements, 512u);
      end = plane.offset + 64 * plane.pieces_per_row * plane.piece.bytes;
    }
    EXPECT_GE(ShardBytes(dtype, 37, 512), end);
    EXPECT_LT(ShardBytes(dtype, 37, 512), end + kPlaneAlignment);
    EXPECT_EQ(ShardBytes(dtype, 37, 512), ShardBytes(dtype, 64, 512)) << "whole tiles";
  }
}

TEST(PackedTensorTest, NormsAreNotCutIntoTiles) {
  PackedTensor norm;
  norm.role = WeightRole::kInputNorm;
  norm.shape = {1, 64};
  norm.shards = {{0, 1, 0, 0}};
  EXPECT_EQ(ShardBytes(norm, norm.shards[0]), 64u * 4);
  EXPECT_TRUE(ValidatePackedTensor(norm, SmallConfig(), {256}).ok());
  norm.shards[0].dtype = DType::kF16;
  EXPECT_EQ(ValidatePackedTensor(norm, SmallConfig(), {256}).message(),
            "layer 0 input_norm: norms are f32, manifest has f16");
}

TEST(PackedTensorTest, AcceptsShardsThatCoverEveryRow) {
  EXPECT_TRUE(ValidatePackedTensor(Down(), SmallConfig(), {16384}).ok());
}

TEST(PackedTensorTest, ShardsMayDifferInFormat) {
  PackedTensor tensor = Down();
  tensor.shards[1].dtype = DType::kQ4_0;
  EXPECT_TRUE(ValidatePackedTensor(tensor, SmallConfig(), {16384}).ok());
  EXPECT_LT(ShardBytes(tensor, tensor.shards[1]), ShardBytes(tensor, tensor.shards[0]));
  tensor.shards[1].dtype = DType::kQ4_K;
  EXPECT_EQ(ValidatePackedTensor(tensor, SmallConfig(), {16384}).message(),
            "layer 1 down: 96 columns are no multiple of q4_k's block of 256");
  tensor.shards[1].dtype = static_cast<DType>(kNumDTypes);
  EXPECT_EQ(ValidatePackedTensor(tensor, SmallConfig(), {16384}).message(),
            "layer 1 down: unknown number format 10");
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
            "layer 1 down: shards end at row 32 of 64");
  tensor = Down();
  tensor.shards = {{0, 40, 0, 0}, {40, 24, 0, 8192}};
  EXPECT_FALSE(ValidatePackedTensor(tensor, config, {16384}).ok()) << "a cut within a tile";
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
