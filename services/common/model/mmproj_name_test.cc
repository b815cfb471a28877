#include "services/common/model/mmproj_name.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tandem {
namespace {

TEST(MmprojNameTest, AreToldByTheirMarkAndSuffix) {
  EXPECT_TRUE(IsMmprojName("mmproj-model-f16.gguf"));
  EXPECT_TRUE(IsMmprojName("gemma.MMPROJ-F16.GGUF"));
  EXPECT_FALSE(IsMmprojName("mmproj-model-f16.gguf.part"));
  EXPECT_FALSE(IsMmprojName("model-Q4_0.gguf"));
  EXPECT_FALSE(IsMmprojName(""));
}

TEST(MmprojNameTest, BelongToModelsThatHaveAllTheirWords) {
  EXPECT_TRUE(MmprojBelongsTo("mmproj-F16.gguf", "any-Q4_0.gguf"));
  EXPECT_TRUE(MmprojBelongsTo("mmproj-model-f16-4B.gguf", "gemma-3-4b-it-q4_0.gguf"));
  EXPECT_TRUE(MmprojBelongsTo("demo2.mmproj-Q8_0.gguf", "demo2.Q4_0.gguf"));
  EXPECT_FALSE(MmprojBelongsTo("mmproj-model-f16-4B.gguf", "gemma-3-12b-it-q4_0.gguf"));
}

TEST(MmprojNameTest, OfSeveralFormatsF16IsTakenThenBf16ThenF32ThenQ8) {
  std::vector<std::string> names = {"mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf",
                                    "mmproj-Q8_0.gguf", "mmproj-A.gguf",   "model.gguf"};
  for (const char* expected :
       {"mmproj-F16.gguf", "mmproj-BF16.gguf", "mmproj-F32.gguf", "mmproj-Q8_0.gguf"}) {
    EXPECT_EQ(ChooseMmproj("model.gguf", names), expected);
    std::reverse(names.begin(), names.end());
    EXPECT_EQ(ChooseMmproj("model.gguf", names), expected);
    std::erase(names, expected);
  }
  EXPECT_EQ(ChooseMmproj("model.gguf", names), std::nullopt);
  EXPECT_EQ(ChooseMmproj("a.gguf", names), "mmproj-A.gguf");
}

TEST(MmprojNameTest, WordsOfTheModelCountMoreThanTheFormat) {
  EXPECT_EQ(ChooseMmproj("gemma-4b-Q4_0.gguf", {"mmproj-F16.gguf", "mmproj-gemma-4b-Q8_0.gguf"}),
            "mmproj-gemma-4b-Q8_0.gguf");
}

}  // namespace
}  // namespace tandem
