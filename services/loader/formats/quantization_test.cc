#include "services/loader/formats/quantization.h"
#include "services/common/testing/paths.h"
#include "services/loader/formats/open_model.h"

#include <gtest/gtest.h>

namespace tandem::loader {
namespace {

SourceTensor Matrix(WeightRole role, DType dtype, uint64_t num_bytes) {
  SourceTensor tensor;
  tensor.role = role;
  tensor.dtype = dtype;
  tensor.num_bytes = num_bytes;
  return tensor;
}

TEST(QuantizationTest, IsTheFormatOfMostOfTheLayersWhateverTheEmbeddingHas) {
  EXPECT_EQ(QuantizationName({Matrix(WeightRole::kEmbedding, DType::kF16, 900),
                              Matrix(WeightRole::kQkv, DType::kQ4_0, 60),
                              Matrix(WeightRole::kDown, DType::kQ8_0, 40),
                              Matrix(WeightRole::kHead, DType::kQ6_K, 900)},
                             "1"),
            "Q4_0");
  EXPECT_EQ(QuantizationName({Matrix(WeightRole::kQkv, DType::kBf16, 1)}, ""), "BF16");
  EXPECT_EQ(QuantizationName({Matrix(WeightRole::kQkv, DType::kIq4Nl, 1)}, "25"), "IQ4_NL");
  EXPECT_EQ(QuantizationName({}, "2"), "");
}

TEST(QuantizationTest, KQuantsSayHowTheyAreMixed) {
  const std::vector<SourceTensor> mixed = {Matrix(WeightRole::kQkv, DType::kQ4_K, 60),
                                           Matrix(WeightRole::kDown, DType::kQ6_K, 40)};
  EXPECT_EQ(QuantizationName(mixed, "15"), "Q4_K_M");
  EXPECT_EQ(QuantizationName(mixed, "14"), "Q4_K_S");
  EXPECT_EQ(QuantizationName(mixed, ""), "Q4_K_M");
  // The file says another format than it has.
  EXPECT_EQ(QuantizationName(mixed, "17"), "Q4_K_M");
  EXPECT_EQ(QuantizationName({Matrix(WeightRole::kQkv, DType::kQ5_K, 1)}, ""), "Q5_K_S");
  EXPECT_EQ(QuantizationName({Matrix(WeightRole::kQkv, DType::kQ6_K, 1)}, "18"), "Q6_K");
}

TEST(QuantizationTest, TheDemoModelsFileIsOfEightBits) {
  const auto source = OpenModelSource(SourcePath("models/demo/demo.Q8_0.gguf"));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(QuantizationOf(**source), "Q8_0");
}

TEST(QuantizationTest, ASyntheticModelHasTheFormatItWasAskedFor) {
  for (const auto& [type, name] : {std::pair{"q4_0", "Q4_0"}, std::pair{"q4_k_m", "Q4_K_M"}}) {
    const auto source =
        OpenModelSource(std::string("synthetic:gemma3-1b?layers=8&hidden=256&type=") + type);
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ(QuantizationOf(**source), name);
  }
}

}  // namespace
}  // namespace tandem::loader
