#include "services/npu_worker/operators/array_weights.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "services/common/base/half.h"
#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/weights/dequantize.h"

namespace tandem::npu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::StatusIs;

constexpr DType kGemms[] = {DType::kQ8_0, DType::kQ4_0, DType::kBf16};

// Of weight [output, input] of a matrix with `num_inputs` columns, in bfloat16.
size_t PlaceOf(size_t output, size_t input, size_t num_inputs) {
  const size_t tiles = (num_inputs + 63) / 64;
  const size_t tile = output / 64 * tiles + input / 64;
  const size_t block = input % 64 / 8 * 8 + output % 64 / 8;
  return ((tile * 64 + block) * 8 + input % 8) * 8 + output % 8;
}

// Outputs end within a tile.  Small regions: shards of a few tiles each.
ModelConfig Config(uint32_t num_heads = 4) {
  return testing::MakeConfig({.num_layers = 2,
                              .hidden_dim = 288,
                              .num_heads = num_heads,
                              .num_kv_heads = 1,
                              .head_dim = 64});
}
std::shared_ptr<const WeightSet> OutOf(DType dtype, const ModelConfig& config) {
  return testing::RandomWeightSet(
      config, {.role_dtypes = {{WeightRole::kOut, dtype}}, .max_region_bytes = 1u << 16});
}

class ArrayWeightsTest : public ::testing::TestWithParam<DType> {};

TEST_P(ArrayWeightsTest, EveryNumberOfBf16HasItsPlaceAndTheRestIsZero) {
  // 256 inputs, as the formats with blocks of 256 want.
  const ModelConfig config = Config();
  const auto weights = OutOf(GetParam(), config);
  const PackedTensor& tensor = *weights->Find(WeightRole::kOut, 1);
  const size_t num_outputs = tensor.shape.rows, num_inputs = tensor.shape.cols;
  ASSERT_EQ(num_outputs, config.hidden_dim);
  ASSERT_EQ(num_inputs, config.q_dim());
  const std::vector<float> values = DequantizeTensor(*weights, tensor);
  constexpr DType kBf16Only[] = {DType::kBf16};
  ASSERT_OK_AND_ASSIGN(const auto parts, PartsOf(tensor, kBf16Only));
  ASSERT_THAT(parts, ElementsAre(MatrixPart{.num_outputs = 288}));
  std::vector<uint16_t> packed(ArrayWeightBytes(DType::kBf16, num_outputs, num_inputs) / 2);
  PackArrayWeights(*weights, tensor, parts[0], std::as_writable_bytes(std::span(packed)));
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

// From shards in regions to one copy, whose rows and columns are filled up to multiples of 64: 288 to 320,
// and 96 (Down's of 96 inputs, no tile and no chunk of scales) to 128.
TEST(QuantisedArrayWeightsTest, BlocksAreCopiedAsTheyAreAndTheRestIsZero) {
  ModelConfig config = Config();
  config.ffn_dim = 96;
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
    const auto weights =
        testing::RandomWeightSet(config, {.dtype = dtype, .max_region_bytes = 1u << 14});
    for (const WeightRole role : {WeightRole::kDown, WeightRole::kOut}) {
      const PackedTensor& tensor = *weights->Find(role, 1);
      SCOPED_TRACE(tensor.Name() + " " + std::string(Traits(dtype).name));
      EXPECT_GT(tensor.shards.size(), 1u);
      ASSERT_OK_AND_ASSIGN(const auto parts, PartsOf(tensor, kGemms));
      ASSERT_THAT(parts, ElementsAre(MatrixPart{.format = dtype, .num_outputs = 288}));
      const uint64_t padded = (tensor.shape.cols + 63) / 64 * 64;
      std::vector<std::byte> copy(ArrayWeightBytes(dtype, 288, tensor.shape.cols));
      EXPECT_EQ(copy.size(), ShardBytes(dtype, 320, padded));
      PackArrayWeights(*weights, tensor, parts[0], copy);
      std::vector<float> expected(padded), actual(padded);
      for (uint64_t row = 0; row < 320; ++row) {
        std::ranges::fill(expected, 0.0f);
        if (row < 288) {
          DequantizeRow(*weights, tensor, row, std::span(expected).first(tensor.shape.cols));
        }
        DequantizePackedRow(dtype, RowInShard(dtype, 320, padded, copy.data(), row), actual);
        ASSERT_EQ(actual, expected) << row;
      }
    }
  }
}

TEST(MatrixPartsTest, AShardGoesToTheGemmOfItsFormat) {
  const ModelConfig config = Config();  // Q has 256 rows, K and V 64
  const auto weights =
      testing::RandomWeightSet(config, {.dtype = DType::kQ4_0, .v_dtype = DType::kQ8_0});
  const PackedTensor& qkv = *weights->Find(WeightRole::kQkv, 1);
  ASSERT_OK_AND_ASSIGN(const auto parts, PartsOf(qkv, kGemms));
  EXPECT_THAT(parts,
              ElementsAre(MatrixPart{DType::kQ4_0, 0, 320}, MatrixPart{DType::kQ8_0, 320, 64}));
  // V's rows alone, counted from the part's first.
  std::vector<std::byte> copy(ArrayWeightBytes(DType::kQ8_0, 64, 288));
  PackArrayWeights(*weights, qkv, parts[1], copy);
  std::vector<float> expected(288), actual(320);
  DequantizeRow(*weights, qkv, 320 + 5, expected);
  expected.resize(320);
  DequantizePackedRow(DType::kQ8_0, RowInShard(DType::kQ8_0, 64, 320, copy.data(), 5), actual);
  EXPECT_EQ(actual, expected);

  constexpr DType kSome[] = {DType::kQ8_0, DType::kBf16};
  ASSERT_OK_AND_ASSIGN(const auto fewer, PartsOf(qkv, kSome));
  EXPECT_THAT(fewer,
              ElementsAre(MatrixPart{DType::kBf16, 0, 320}, MatrixPart{DType::kQ8_0, 320, 64}));
  constexpr DType kOne[] = {DType::kBf16};
  ASSERT_OK_AND_ASSIGN(const auto one, PartsOf(qkv, kOne));
  EXPECT_THAT(one, ElementsAre(MatrixPart{DType::kBf16, 0, 384}));
}

TEST(MatrixPartsTest, AFormatWithoutAGemmIsRefusedByName) {
  const auto weights = OutOf(DType::kQ5_K, Config());
  constexpr DType kQuantised[] = {DType::kQ8_0, DType::kQ4_0};
  EXPECT_THAT(PartsOf(*weights->Find(WeightRole::kOut, 1), kQuantised).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("layer 1 out: the NPU does not read q5_k weights, its package has "
                                 "GEMMs over q8_0, q4_0")));
}

// Tiles of an array have 64 outputs, and shards may begin at any multiple of 32.
TEST(MatrixPartsTest, AFormatThatChangesWithinATileMakesTheWholeMatrixBf16) {
  PackedTensor tensor = {.role = WeightRole::kOut, .shape = {160, 256}};
  tensor.shards = {{.num_rows = 64, .dtype = DType::kQ8_0},
                   {.first_row = 64, .num_rows = 32, .dtype = DType::kQ8_0},
                   {.first_row = 96, .num_rows = 64, .dtype = DType::kQ4_0}};
  ASSERT_OK_AND_ASSIGN(const auto parts, PartsOf(tensor, kGemms));
  EXPECT_THAT(parts, ElementsAre(MatrixPart{DType::kBf16, 0, 160}));
  constexpr DType kQuantised[] = {DType::kQ8_0, DType::kQ4_0};
  EXPECT_THAT(PartsOf(tensor, kQuantised).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("changes at row 96")));
}

}  // namespace
}  // namespace tandem::npu
