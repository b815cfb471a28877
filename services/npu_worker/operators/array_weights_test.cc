#include "services/npu_worker/operators/array_weights.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "services/common/base/half.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/common/weights/dequantize.h"

namespace tandem::npu {
namespace {

// Of weight [output, input] of a matrix with `num_inputs` columns.
size_t PlaceOf(size_t output, size_t input, size_t num_inputs) {
  const size_t tiles = (num_inputs + 63) / 64;
  const size_t tile = output / 64 * tiles + input / 64;
  const size_t block = input % 64 / 8 * 8 + output % 64 / 8;
  return ((tile * 64 + block) * 8 + input % 8) * 8 + output % 8;
}

class ArrayWeightsTest : public ::testing::TestWithParam<DType> {};

TEST_P(ArrayWeightsTest, EveryNumberHasItsPlaceAndTheRestIsZero) {
  // 288 outputs end within a tile; 256 inputs, as the formats with blocks of 256 want.
  const ModelConfig config = testing::MakeConfig(
      {.num_layers = 2, .hidden_dim = 288, .num_heads = 4, .num_kv_heads = 1, .head_dim = 64});
  const auto weights = testing::RandomWeightSet(
      config, {.role_dtypes = {{WeightRole::kOut, GetParam()}}, .max_region_bytes = 1u << 16});
  const PackedTensor& tensor = *weights->Find(WeightRole::kOut, 1);
  const size_t num_outputs = tensor.shape.rows, num_inputs = tensor.shape.cols;
  ASSERT_EQ(num_outputs, config.hidden_dim);
  ASSERT_EQ(num_inputs, config.q_dim());
  const std::vector<float> values = DequantizeTensor(*weights, tensor);
  std::vector<uint16_t> packed(NumArrayWeights(num_outputs, num_inputs), 0xFFFF);
  PackArrayWeights(*weights, tensor, packed);
  size_t wrong = 0;
  for (size_t output = 0; output < num_outputs; ++output) {
    for (size_t input = 0; input < num_inputs; ++input) {
      uint16_t& number = packed[PlaceOf(output, input, num_inputs)];
      wrong += number != FloatToBf16(values[output * num_inputs + input]);
      number = 0;
    }
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(std::ranges::count(packed, 0), static_cast<std::ptrdiff_t>(packed.size()));
}

INSTANTIATE_TEST_SUITE_P(Formats, ArrayWeightsTest,
                         ::testing::ValuesIn(AllDTypes().begin(), AllDTypes().end()),
                         [](const auto& instance) {
                           return std::string(Traits(instance.param).name);
                         });

}  // namespace
}  // namespace tandem::npu
