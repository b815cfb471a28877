// `tandem convert` of models that see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/loader/formats/testing/vision_builder.h"
#include "tools/tandem/commands/testing/child.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace loader::testing;  // the builders

class ConvertCommandTest : public ::testing::Test {
 protected:
  ConvertCommandTest() { SmallVisionRelease().Write(folder_); }
  int Convert(const std::string& file, const std::vector<std::string>& more) {
    std::vector<std::string> all = {"convert", folder_.path(), out_.path() + "/" + file};
    all.insert(all.end(), more.begin(), more.end());
    Child child(all);
    const int code = child.Wait();
    output_ = child.output();
    errors_ = child.errors();
    return code;
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(out_.path())) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  // What `tandem inspect` says of the encoder of a file.
  nlohmann::json Encoder(const std::string& file) const {
    Child child({"inspect", "--json", out_.path() + "/" + file});
    child.Wait();
    return nlohmann::json::parse(child.output()).at("vision");
  }

  TemporaryFolder folder_, out_;
  std::string output_, errors_;
};

TEST_F(ConvertCommandTest, TheEncoderGoesBesideTheModelAndIsFoundThere) {
  ASSERT_EQ(Convert("small.BF16.gguf", {"--type", "bf16"}), 0) << errors_;
  const std::string encoder = "small.mmproj-F16.gguf";
  EXPECT_THAT(Files(), ElementsAre("small.BF16.gguf", encoder));
  EXPECT_THAT(output_, HasSubstr(out_.path() + "/" + encoder));
  EXPECT_EQ(Encoder("small.BF16.gguf").at("path"), out_.path() + "/" + encoder);
  EXPECT_EQ(Encoder("small.BF16.gguf").at("tensors").size(), 39u);
  // Another file of the model has the same encoder.
  std::filesystem::rename(out_.path() + "/small.BF16.gguf", out_.path() + "/other");
  ASSERT_EQ(Convert("small.BF16.gguf", {"--type", "bf16"}), 0) << errors_;
  EXPECT_THAT(output_, HasSubstr("as it was there already"));
  EXPECT_EQ(Encoder("small.BF16.gguf").at("path"), out_.path() + "/" + encoder);
}

TEST_F(ConvertCommandTest, TypeFileAndNoneAreFlags) {
  ASSERT_EQ(Convert("a.gguf", {"--type", "bf16", "--mmproj", "none"}), 0) << errors_;
  EXPECT_THAT(Files(), ElementsAre("a.gguf"));
  const std::string eyes = out_.path() + "/eyes.gguf";
  ASSERT_EQ(
      Convert("a.gguf", {"--type", "bf16", "--force", "--mmproj", eyes, "--mmproj-type", "f32"}), 0)
      << errors_;
  EXPECT_THAT(Files(), ElementsAre("a.gguf", "eyes.gguf"));
  EXPECT_EQ(Convert("b.gguf", {"--type", "bf16", "--mmproj-type", "q4_k"}), 2);
  EXPECT_THAT(errors_, HasSubstr("f32, f16, bf16, q8_0"));
}

TEST_F(ConvertCommandTest, AnotherFileIsNotReplacedUnlessForced) {
  out_.Write("small.mmproj-F16.gguf", "another");
  EXPECT_EQ(Convert("small.gguf", {"--type", "bf16"}), 1);
  EXPECT_THAT(errors_, HasSubstr("small.mmproj-F16.gguf is there already"));
  EXPECT_THAT(Files(), ElementsAre("small.mmproj-F16.gguf")) << "no model without its encoder";
  EXPECT_EQ(Convert("small.gguf", {"--type", "bf16", "--force"}), 0) << errors_;
  EXPECT_EQ(Encoder("small.gguf").at("tensors").size(), 39u);
}

TEST_F(ConvertCommandTest, AModelThatCannotBeWrittenLeavesNoEncoder) {
  EXPECT_EQ(Convert("small.gguf", {"--type", "q8_0"}), 1);
  EXPECT_THAT(errors_, HasSubstr("blocks of 32"));
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(ConvertCommandTest, TextModelsHaveNoEncoderToWrite) {
  SmallRelease().Write(folder_);
  ASSERT_EQ(Convert("text.gguf", {"--type", "bf16"}), 0) << errors_;
  EXPECT_THAT(output_, Not(HasSubstr("encoder")));
  EXPECT_THAT(Files(), ElementsAre("text.gguf"));
  EXPECT_EQ(Convert("b.gguf", {"--type", "bf16", "--mmproj", "eyes.gguf"}), 1);
  EXPECT_THAT(errors_, HasSubstr("no safetensors folder with a vision_config"));
}

}  // namespace
}  // namespace tandem
