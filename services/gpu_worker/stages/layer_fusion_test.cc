#include "services/gpu_worker/stages/layer_fusion.h"

#include <gtest/gtest.h>

namespace tandem::gpu {
namespace {

DeviceTensor Matrix(DType dtype, uint64_t rows, uint64_t cols) {
  return {.dtype = dtype, .rows = rows, .cols = cols, .shards = {{.num_rows = rows}}};
}

class LayerFusionTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kHidden = 512;

  LayerFusionTest() {
    tuning_.matvec_max_rows = 8;
    tuning_.wide_norm_threads = 256;
    tuning_.norm_inputs = 1;
    tuning_.max_shared_bytes = 48 << 10;
  }
  // Two layers, all of whose stages are in the segment.
  std::vector<LayerWeights> Layers() const {
    return std::vector<LayerWeights>(
        2,
        {.qkv = {&qkv_, 1}, .attends = true, .out = &out_, .gate_up = &gate_up_, .down = &down_});
  }
  std::vector<LayerFusion> Choose(const std::vector<LayerWeights>& layers, uint32_t rows = 1,
                                  const AttentionFormats& attention = {.writes_own = true}) const {
    return ChooseFusions(tuning_, layers, kHidden, attention, rows);
  }

  Tuning tuning_;
  DeviceTensor qkv_ = Matrix(DType::kQ4_0, 1024, kHidden);
  DeviceTensor out_ = Matrix(DType::kQ4_0, kHidden, 512);
  DeviceTensor gate_up_ = Matrix(DType::kQ4_0, 4096, kHidden);
  DeviceTensor down_ = Matrix(DType::kQ4_0, kHidden, 2048);
};

TEST_F(LayerFusionTest, MatmulsOfOneRowComputeTheNormsOfTheirInputs) {
  const auto fusions = Choose(Layers());
  EXPECT_EQ(fusions[0].qkv_norm, QkvNorm::kAlone) << "no Ffn before it";
  EXPECT_TRUE(fusions[0].gate_up_has_norm);
  EXPECT_EQ(fusions[1].qkv_norm, QkvNorm::kInQkv);
}

TEST_F(LayerFusionTest, ElseTheLaunchThatAddsTheFfnComputesTheNormOfQkv) {
  const auto more_rows = Choose(Layers(), 2);
  EXPECT_FALSE(more_rows[0].gate_up_has_norm);
  EXPECT_EQ(more_rows[1].qkv_norm, QkvNorm::kWithAdd);
  qkv_.dtype = DType::kQ8_0;
  const auto other_format = Choose(Layers());
  EXPECT_TRUE(other_format[0].gate_up_has_norm);
  EXPECT_EQ(other_format[1].qkv_norm, QkvNorm::kWithAdd) << "q8_0 takes no norm";
  qkv_.dtype = DType::kQ4_0;
  gate_up_.dtype = DType::kQ8_0;
  EXPECT_EQ(Choose(Layers())[1].qkv_norm, QkvNorm::kWithAdd) << "the residual lies elsewhere";
}

TEST_F(LayerFusionTest, AQkvWithoutTheFfnBeforeItNormsByItself) {
  std::vector<LayerWeights> layers = Layers();
  layers[0].gate_up = layers[0].down = nullptr;
  EXPECT_EQ(Choose(layers)[1].qkv_norm, QkvNorm::kAlone);
}

TEST_F(LayerFusionTest, AttentionIsInt8WhereBothSidesRunHereAndAgree) {
  EXPECT_EQ(Choose(Layers())[0].out.input, ActivationFormat::kInt8);
  EXPECT_EQ(Choose(Layers(), 1, {.writes_own = false})[0].out.input, ActivationFormat::kF16);
  std::vector<LayerWeights> layers = Layers();
  layers[0].attends = false;
  EXPECT_EQ(Choose(layers)[0].out.input, ActivationFormat::kF16);
  layers = Layers();
  layers[0].out = nullptr;
  EXPECT_EQ(Choose(layers)[0].out.input, ActivationFormat::kF16) << "another worker reads it";
}

TEST_F(LayerFusionTest, AttentionIsBfloat16WhereAnotherWorkerWritesIt) {
  const AttentionFormats formats = {.writes_own = true, .from_elsewhere = ActivationFormat::kBf16};
  std::vector<LayerWeights> layers = Layers();
  layers[0].attends = false;
  for (const uint32_t rows : {1u, 64u}) {
    const auto fusions = Choose(layers, rows, formats);
    EXPECT_EQ(fusions[0].out.input, ActivationFormat::kBf16);
    EXPECT_EQ(fusions[1].out.input, Choose(Layers(), rows)[1].out.input) << "it attends itself";
  }
}

TEST_F(LayerFusionTest, TheFfnAddsThePartialSumsOfAnOutThatRunsHere) {
  tuning_.matvec_teams = 1;
  tuning_.matvec_rounds = tuning_.matvec_rounds_few = 1;
  tuning_.matvec_full_teams = 1 << 20;
  std::vector<LayerWeights> layers = Layers();
  layers[1].out = nullptr;
  const auto fusions = Choose(layers);
  ASSERT_GT(fusions[0].out.split_k(), 1u);
  EXPECT_EQ(fusions[0].out_split_k, fusions[0].out.split_k());
  EXPECT_EQ(fusions[1].out_split_k, 1u);
  layers[0].gate_up = layers[0].down = nullptr;
  EXPECT_EQ(Choose(layers)[0].out_split_k, 1u) << "another worker gets their sum";
}

}  // namespace
}  // namespace tandem::gpu
