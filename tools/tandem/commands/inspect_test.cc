// `tandem inspect` of models that see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "nlohmann/json.hpp"
#include "services/loader/formats/testing/vision_builder.h"
#include "tools/tandem/commands/testing/child.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace loader::testing;  // the builders

std::string Inspect(const std::vector<std::string>& arguments, int exit_code) {
  std::vector<std::string> all = {"inspect"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  Child child(all);
  EXPECT_EQ(child.Wait(), exit_code) << child.errors();
  return child.output();
}
// The small models' vocabulary has too few pieces to be served, which is said after the tables.
std::string InspectModel(const std::vector<std::string>& arguments) {
  return Inspect(arguments, 1);
}

TEST(InspectTest, PrintsAnMmprojFile) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("mmproj.gguf", SmallMmproj().Build());
  const std::string text = Inspect({path}, 0);
  EXPECT_THAT(text, HasSubstr("Vision encoder"));
  EXPECT_THAT(text, HasSubstr("8 x 8 pixels, 16 patches of 2 x 2"));
  EXPECT_THAT(text, HasSubstr("v.blk.1.attn_q.weight"));
  const auto json = nlohmann::json::parse(Inspect({"--json", path}, 0));
  EXPECT_EQ(json.at("config").at("tokens_per_image"), 4);
  EXPECT_EQ(json.at("tensors").size(), 39u);
}

TEST(InspectTest, PrintsTheEncoderBesideAModel) {
  const TemporaryFolder folder;
  const std::string model = folder.Write("small.Q8_0.gguf", SmallGguf().Build());
  EXPECT_THAT(InspectModel({model}), Not(HasSubstr("Vision encoder")));
  const std::string mmproj = folder.Write("small.mmproj-F16.gguf", SmallMmproj().Build());
  EXPECT_THAT(InspectModel({model}), HasSubstr("Vision encoder\n  file     " + mmproj));
  const auto json = nlohmann::json::parse(InspectModel({"--json", model}));
  EXPECT_EQ(json.at("vision").at("path"), mmproj);
  EXPECT_EQ(json.at("vision").at("config").at("text_hidden_dim"), 8);
}

TEST(InspectTest, PrintsTheEncoderBesideALinkOfADownloadCache) {
  const TemporaryFolder cache;
  cache.Write("blobs/0123", SmallGguf().Build());
  cache.Write("blobs/4567", SmallMmproj().Build());
  const std::string snapshot = cache.path() + "/snapshots/rev/";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_symlink("../../blobs/0123", snapshot + "small.gguf");
  std::filesystem::create_symlink("../../blobs/4567", snapshot + "mmproj-F16.gguf");
  EXPECT_THAT(InspectModel({snapshot + "small.gguf"}),
              HasSubstr("Vision encoder\n  file     " + snapshot + "mmproj-F16.gguf"));
}

TEST(InspectTest, PrintsTheEncoderOfAFolder) {
  const TemporaryFolder folder;
  SmallVisionRelease().Write(folder);
  EXPECT_THAT(InspectModel({folder.path()}), HasSubstr("4, each of 2 x 2 patches, 8 wide"));
}

TEST(InspectTest, SaysWhyAnEncoderCannotBeRead) {
  const TemporaryFolder folder;
  Release release = SmallVisionRelease();
  release.FindTensor("vision_tower.vision_model.post_layernorm.bias").name = "elsewhere";
  release.Write(folder);
  EXPECT_THAT(InspectModel({folder.path()}),
              HasSubstr("cannot be read: " + folder.path() +
                        ": the vision encoder's tensor post_layernorm.bias is missing"));
  const auto json = nlohmann::json::parse(InspectModel({"--json", folder.path()}));
  EXPECT_THAT(json.at("vision").at("error").get<std::string>(), HasSubstr("is missing"));
  const TemporaryFolder other;
  Child child({"inspect", other.Write("mmproj.gguf", SmallMmproj().Build().substr(0, 9000))});
  EXPECT_EQ(child.Wait(), 1);
}

// Its sizes tell that it is another model's.
TEST(InspectTest, LeavesOutTheEncoderOfAnotherModel) {
  const TemporaryFolder folder;
  const std::string model = folder.Write("small.gguf", SmallGguf().Build());
  GgufBuilder wider = SmallMmproj();
  wider.SetU32("clip.vision.projection_dim", 4);
  auto& projection = wider.FindTensor("mm.input_projection.weight");
  projection.dims = {4, 32};
  projection.data.resize(projection.data.size() / 2);
  folder.Write("mmproj.gguf", wider.Build());
  EXPECT_THAT(InspectModel({model}), Not(HasSubstr("Vision encoder")));
}

}  // namespace
}  // namespace tandem
