#include "services/common/testing/random_weights.h"

#include <gtest/gtest.h>

#include "services/common/testing/compare.h"
#include "services/common/testing/model_configs.h"
#include "services/common/weights/dequantize.h"

namespace tandem::testing {
namespace {

TEST(RandomWeightsTest, NumbersDoNotDependOnHowRegionsAreCut) {
  const ModelConfig config = MakeConfig({});
  const auto whole = RandomWeightSet(config);
  const auto cut = RandomWeightSet(config, {.max_region_bytes = 16384});
  EXPECT_EQ(whole->regions().size(), 1u);
  EXPECT_GT(cut->Find(WeightRole::kQkv, 1)->shards.size(), 1u);
  for (const PackedTensor& tensor : whole->tensors()) {
    EXPECT_EQ(DequantizeTensor(*whole, tensor),
              DequantizeTensor(*cut, *cut->Find(tensor.role, tensor.layer_idx)))
        << tensor.Name();
  }
}

TEST(RandomWeightsTest, MatricesKeepTheirNormInEveryFormat) {
  const ModelConfig config = MakeConfig({.hidden_dim = 256, .ffn_dim = 256, .head_dim = 64});
  const auto plain = RandomWeightSet(config, {.dtype = DType::kF32});
  const PackedTensor& expected = *plain->Find(WeightRole::kGateUp, 2);
  for (const DType dtype : AllDTypes()) {
    const auto weights = RandomWeightSet(config, {.dtype = dtype});
    // Four bits of a Gaussian block of 32: steps of 1/8 of about 2.1 deviations, uniform error.
    EXPECT_TRUE(IsNearInNorm(DequantizeTensor(*weights, *weights->Find(WeightRole::kGateUp, 2)),
                             DequantizeTensor(*plain, expected), 0.1))
        << Traits(dtype).name;
  }
}

TEST(RandomWeightsTest, AHeadOfItsOwnDiffersFromTheEmbedding) {
  const auto weights = RandomWeightSet(
      MakeConfig({}), {.role_dtypes = {{WeightRole::kHead, DType::kF32}}, .separate_head = true});
  EXPECT_EQ(weights->head().shards[0].dtype, DType::kF32);
  EXPECT_NE(DequantizeTensor(*weights, weights->head()),
            DequantizeTensor(*weights, *weights->Find(WeightRole::kEmbedding)));
}

}  // namespace
}  // namespace tandem::testing
