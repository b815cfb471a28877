#include "services/gateway/model/model_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ModelNamesTest, AFileAnswersToItsNameWithAndWithoutFolderAndSuffix) {
  const ModelNames names("quants/demo.Q8_0.gguf", {});
  for (const char* name :
       {"", "quants/demo.Q8_0.gguf", "quants/demo.Q8_0", "demo.Q8_0.gguf", "demo.Q8_0",
        "demo.Q8_0:latest", "quants/demo.Q8_0.gguf:latest", "quants%2Fdemo.Q8_0"}) {
    EXPECT_EQ(names.Resolve(name).value_or("none"), "quants/demo.Q8_0.gguf") << name;
  }
  for (const char* name : {"demo", "Q8_0", "quants", "demo.Q8_0.ggu", "DEMO.Q8_0", "demo.Q8_0:27b",
                           "other/demo.Q8_0", "demo.Q8_0.gguf.gguf", ":latest"}) {
    EXPECT_TRUE(absl::IsNotFound(names.Resolve(name).status())) << name;
  }
}

TEST(ModelNamesTest, AliasesAreListedAfterTheServedName) {
  const ModelNames names("demo.gguf",
                         {.aliases = {"gemma3:27b", "mine", "mine:latest", "mine", "demo.gguf"}});
  EXPECT_THAT(names.listed(), ElementsAre("demo.gguf", "gemma3:27b", "mine"));
  EXPECT_EQ(*names.Resolve("gemma3:27b"), "gemma3:27b");
  EXPECT_EQ(*names.Resolve("mine:latest"), "mine");
  EXPECT_EQ(*names.Resolve("demo"), "demo.gguf");
  const absl::Status other = names.Resolve("gemma3").status();
  EXPECT_TRUE(absl::IsNotFound(other));
  EXPECT_THAT(std::string(other.message()),
              HasSubstr(R"(does not serve "gemma3", only "demo.gguf", "gemma3:27b", "mine")"));
  const ModelNames tagged("demo.gguf", {.aliases = {"mine:latest"}});
  EXPECT_EQ(*tagged.Resolve("mine"), "mine:latest");
}

TEST(ModelNamesTest, AnyNameMeansTheServedModelWhereThatIsAskedFor) {
  const ModelNames names("demo.gguf", {.aliases = {"mine"}, .any = true});
  EXPECT_EQ(*names.Resolve("gpt-4o"), "demo.gguf");
  EXPECT_EQ(*names.Resolve("mine"), "mine");
}

TEST(ModelNamesTest, AliasesThatNoClientCouldSendAreRefused) {
  for (const char* alias : {"gemma3:27b", "google/gemma-3", "Größe"}) {
    EXPECT_TRUE(CheckAlias(alias).ok()) << alias;
  }
  for (const char* alias : {"", "two words", "tab\t", "line\n"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckAlias(alias))) << alias;
  }
  EXPECT_FALSE(CheckAlias(std::string(257, 'a')).ok());
}

}  // namespace
}  // namespace tandem::gateway
