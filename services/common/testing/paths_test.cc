#include "services/common/testing/paths.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace tandem {
namespace {

TEST(PathsTest, AreAbsoluteAndThere) {
  for (const std::string& path : {SourcePath("models/demo/demo.Q8_0.gguf"),
                                  BuildPath("CMakeCache.txt"), TestDataPath("demo.Q4_0.gguf")}) {
    EXPECT_TRUE(std::filesystem::path(path).is_absolute()) << path;
    EXPECT_TRUE(std::filesystem::exists(path)) << path;
  }
}

TEST(PathsTest, AnEmptyPathIsTheFolderItself) {
  EXPECT_EQ(SourcePath("") + "/models", SourcePath("models"));
  EXPECT_EQ(BuildPath("") + "/bin", BuildPath("bin"));
  EXPECT_EQ(TestDataPath("") + "/demo", TestDataPath("demo"));
}

}  // namespace
}  // namespace tandem
