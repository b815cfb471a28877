#include "services/loader/vision/vision_source.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "services/common/testing/status_matchers.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/formats/testing/vision_builder.h"

namespace tandem::loader {
namespace {

using ::tandem::testing::HasCode;
using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;
using namespace testing;  // the builders

constexpr uint32_t kGgmlQ8_0 = 8;
constexpr uint32_t kGgmlBf16 = 30;

// Every number of every tensor, within `tolerance`.
void ExpectValues(const VisionSource& source, float norm_offset, float tolerance) {
  EXPECT_EQ(source.config, SmallVisionConfig());
  EXPECT_EQ(source.tensors.size(), 7u + 2 * 16);
  ASSERT_OK_AND_ASSIGN(const VisionWeights weights, ReadVisionWeights(source));
  EXPECT_EQ(weights.tensors.size(), source.tensors.size());
  for (const auto& [slot, values] : weights.tensors) {
    const Shape2D shape = VisionShape(slot.first, weights.config);
    ASSERT_EQ(values.size(), shape.rows * shape.cols);
    const float offset = slot.first == VisionRole::kProjectionNorm ? norm_offset : 0.0f;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], SmallVisionValue(i) + offset, tolerance)
          << static_cast<int>(slot.first) << " layer " << slot.second << " number " << i;
    }
  }
}

TEST(VisionSourceTest, ReadsMmprojFilesOfEveryFormat) {
  const TemporaryFolder folder;
  for (const uint32_t type : {0u, 1u, kGgmlBf16}) {
    const std::string path = folder.Write("mmproj.gguf", SmallMmproj(type).Build());
    EXPECT_TRUE(IsVisionFile(path));
    ASSERT_OK_AND_ASSIGN(const auto source, OpenVisionSource(path));
    EXPECT_EQ(source->format, "gguf");
    ExpectValues(*source, 0.0f, 0.0f);
  }
  const std::string path = folder.Write("mmproj.gguf", SmallMmproj(kGgmlQ8_0).Build());
  ASSERT_OK_AND_ASSIGN(const auto source, OpenVisionSource(path));
  ExpectValues(*source, 0.0f, 0.75f / 127);  // a step of a block whose largest number is 3/4
}

TEST(VisionSourceTest, ReadsOldMmprojFilesWhoseUpAndDownAreSwapped) {
  const TemporaryFolder folder;
  GgufBuilder builder = SmallMmproj();
  SwapFfnNames(builder);
  ASSERT_OK_AND_ASSIGN(const auto source,
                       OpenVisionSource(folder.Write("mmproj.gguf", builder.Build())));
  ExpectValues(*source, 0.0f, 0.0f);
  size_t num_ffn = 0;
  for (const VisionTensor& tensor : source->tensors) {
    if (!tensor.name.starts_with("v.blk.1.ffn_")) continue;
    ++num_ffn;
    const bool up = tensor.role == VisionRole::kUpWeight || tensor.role == VisionRole::kUpBias;
    EXPECT_EQ(tensor.name.starts_with("v.blk.1.ffn_down."), up) << tensor.name;
  }
  EXPECT_EQ(num_ffn, 4u);
  // Weights and biases change places together, in all layers.
  builder.FindTensor("v.blk.1.ffn_up.bias").name = "x";
  builder.FindTensor("v.blk.1.ffn_down.bias").name = "v.blk.1.ffn_up.bias";
  builder.FindTensor("x").name = "v.blk.1.ffn_down.bias";
  EXPECT_THAT(OpenVisionSource(folder.Write("mmproj.gguf", builder.Build())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected [")));
}

TEST(VisionSourceTest, ReadsReleasesWithEveryPrefix) {
  for (const auto& [tower, projector] :
       {std::pair{"vision_tower.vision_model.", "multi_modal_projector."},
        {"model.vision_tower.vision_model.", "model.multi_modal_projector."},
        {"model.vision_tower.", "model.multi_modal_projector."}}) {
    Release release = SmallVisionRelease();
    for (StoredTensor& tensor : release.tensors) {
      const auto replace = [&tensor](std::string_view from, const char* to) {
        if (tensor.name.starts_with(from)) tensor.name = to + tensor.name.substr(from.size());
      };
      replace("vision_tower.vision_model.", tower);
      replace("multi_modal_projector.", projector);
    }
    for (const size_t num_shards : {1u, 3u}) {
      const TemporaryFolder folder;
      num_shards == 1 ? release.Write(folder) : release.WriteSharded(folder, num_shards);
      ASSERT_OK_AND_ASSIGN(const auto source, OpenVisionSource(folder.path()));
      EXPECT_EQ(source->format, "safetensors");
      ExpectValues(*source, 1.0f, 0.0f);
      // The decoder is read beside it, as before.
      EXPECT_OK(OpenModelSource(folder.path()).status());
    }
  }
}

TEST(VisionSourceTest, TextModelsHaveNone) {
  const TemporaryFolder folder;
  SmallRelease().Write(folder);
  EXPECT_THAT(OpenVisionSource(folder.path()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("does not read pictures")));
  EXPECT_EQ(FindVision(folder.path()), std::nullopt);
  const std::string text = folder.Write("text.gguf", SmallGguf().Build());
  EXPECT_FALSE(IsVisionFile(text));
  EXPECT_THAT(OpenVisionSource(text),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no mmproj file")));
  EXPECT_FALSE(IsVisionFile(folder.path() + "/missing"));
  EXPECT_THAT(OpenVisionSource("/nowhere"), HasCode(absl::StatusCode::kNotFound));
}

TEST(VisionSourceTest, RefusesWrongMmprojFiles) {
  const struct {
    std::function<void(GgufBuilder&)> change;
    const char* message;
  } cases[] = {
      {[](auto& b) { b.SetString("clip.projector_type", "mlp"); }, "clip.projector_type is mlp"},
      {[](auto& b) { b.RemoveKey("clip.projector_type"); }, "clip.projector_type is missing"},
      {[](auto& b) { b.SetBool("clip.use_gelu", false); }, "clip.use_gelu is false"},
      {[](auto& b) { b.RemoveKey("clip.vision.image_size"); }, "clip.vision.image_size is missing"},
      {[](auto& b) { b.SetString("clip.vision.image_size", "8"); }, "clip.vision.image_size"},
      {[](auto& b) { b.SetU32("clip.vision.image_size", 9); }, "image_size 9 is not a multiple"},
      {[](auto& b) { b.SetU32("clip.vision.image_size", ~0u); }, "scale_factor"},
      {[](auto& b) { b.SetU32("clip.vision.patch_size", 0); }, "scale_factor"},
      {[](auto& b) { b.SetU32("clip.vision.projector.scale_factor", 0); }, "scale_factor 0"},
      {[](auto& b) { b.SetU32("clip.vision.projector.scale_factor", 3); }, "scale_factor 3"},
      {[](auto& b) { b.SetU32("clip.vision.attention.head_count", 3); }, "num_heads 3"},
      {[](auto& b) { b.SetU32("clip.vision.block_count", ~0u); }, "num_layers"},
      {[](auto& b) { b.SetU32("clip.vision.block_count", 3); }, "v.blk.2.ln1.weight is missing"},
      {[](auto& b) { b.SetU32("clip.vision.block_count", 1); }, "has 1 layers"},
      {[](auto& b) { b.SetU32("clip.vision.projection_dim", 9); }, "expected [32, 9], file has"},
      {[](auto& b) { b.SetF32s("clip.vision.image_std", {0.5f}); }, "expected three f32"},
      {[](auto& b) {
         b.SetF32s("clip.vision.image_std", {0.5f, 0, 1});
       },
       "image_std is 0"},
      {[](auto& b) { b.RemoveTensor("v.post_ln.bias"); }, "v.post_ln.bias is missing"},
      {[](auto& b) { b.RemoveTensor("mm.soft_emb_norm.weight"); }, "soft_emb_norm.weight is missi"},
      {[](auto& b) { b.FindTensor("v.post_ln.bias").name = "v.pre_ln.bias"; }, "is no part of"},
      {[](auto& b) { b.FindTensor("v.post_ln.bias").name = "output.weight"; }, "is no part of"},
      {[](auto& b) { b.FindTensor("v.blk.1.ln1.bias").name = "v.blk.01.ln1.bias"; }, "no part of"},
      {[](auto& b) {
         b.FindTensor("v.blk.0.ffn_up.weight").dims = {64, 32};
       },
       "expected [64, 32], file has [32, 64]"},
      {[](auto& b) {
         b.FindTensor("v.post_ln.bias").type = kGgmlQ8_0;
         b.FindTensor("v.post_ln.bias").data = std::string(34, 'x');
       },
       "v.post_ln.bias: q8_0 is no format for it"},
  };
  const TemporaryFolder folder;
  for (const auto& test : cases) {
    GgufBuilder builder = SmallMmproj();
    test.change(builder);
    const std::string path = folder.Write("mmproj.gguf", builder.Build());
    EXPECT_THAT(OpenVisionSource(path),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(test.message)));
  }
}

TEST(VisionSourceTest, RefusesFilesCutShort) {
  const TemporaryFolder folder;
  const std::string file = SmallMmproj().Build();
  for (size_t length = 0; length < file.size(); length += 997) {
    const std::string path = folder.Write("mmproj.gguf", file.substr(0, length));
    EXPECT_THAT(OpenVisionSource(path), HasCode(absl::StatusCode::kInvalidArgument)) << length;
  }
  // Cut while it is open.
  const std::string path = folder.Write("mmproj.gguf", file);
  ASSERT_OK_AND_ASSIGN(const auto source, OpenVisionSource(path));
  std::filesystem::resize_file(path, file.size() / 2);
  EXPECT_THAT(ReadVisionWeights(*source), HasCode(absl::StatusCode::kDataLoss));
}

TEST(VisionSourceTest, RefusesWrongReleases) {
  const struct {
    const char* file;
    const char* from;
    const char* to;
    const char* message;
  } cases[] = {
      {"config.json", "\"siglip_vision_model\"", "\"clip\"", "model_type clip is not supported"},
      {"config.json", "\"patch_size\": 2", "\"patch_size\": 3", "image_size 8 is not a multiple"},
      {"config.json", "\"patch_size\": 2", "\"patch_size\": -2", "patch_size"},
      {"config.json", "\"mm_tokens_per_image\": 4", "\"mm_tokens_per_image\": 5", "no square"},
      {"config.json", "\"vision_use_head\"", "\"hidden_act\": \"relu\", \"x\"",
       "hidden_act is relu"},
      {"config.json", "\"vision_use_head\"", "\"num_channels\": 4, \"x\"", "num_channels is 4"},
      {"config.json", "\"image_size\": 8", "\"image_size\": 16", "a height of 8"},
      {"preprocessor_config.json", "\"resample\": 2", "\"resample\": 3", "resample is 3"},
      {"preprocessor_config.json", "\"do_resize\": true", "\"do_resize\": false", "do_resize"},
      {"preprocessor_config.json", "[0.5, 0.5, 0.5]", "[0.5]", "image_mean is [0.5]"},
      {"preprocessor_config.json", "[0.5, 0.5, 0.5]", "[0.5, 0.5, \"x\"]", "is no number"},
      {"preprocessor_config.json", "0.00392156862745098", "0", "rescale factor is 0"},
      {"preprocessor_config.json", "{", "[", "preprocessor_config.json"},
  };
  for (const auto& test : cases) {
    Release release = SmallVisionRelease();
    std::string& text = release.files[test.file];
    const size_t at = text.find(test.from);
    ASSERT_NE(at, std::string::npos) << test.from;
    text.replace(at, std::string(test.from).size(), test.to);
    const TemporaryFolder folder;
    release.Write(folder);
    EXPECT_THAT(OpenVisionSource(folder.path()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(test.message)));
  }
}

TEST(VisionSourceTest, RefusesUnknownAndMissingTensorsOfReleases) {
  const auto opened = [](const std::function<void(Release&)>& change) {
    Release release = SmallVisionRelease();
    change(release);
    const TemporaryFolder folder;
    release.Write(folder);
    return OpenVisionSource(folder.path()).status();
  };
  const std::string bias = "vision_tower.vision_model.encoder.layers.1.mlp.fc2.bias";
  EXPECT_THAT(opened([&](Release& r) { r.FindTensor(bias).name += "2"; }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is no part of")));
  EXPECT_THAT(opened([&](Release& r) { r.FindTensor(bias).name = "elsewhere"; }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("encoder.layers.1.mlp.fc2.bias is missing")));
  EXPECT_THAT(opened([&](Release& r) { r.FindTensor(bias).dtype = "I16"; }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has type I16")));
}

TEST(FindVisionTest, FindsTheFileThatBelongsToTheModel) {
  const TemporaryFolder folder;
  const auto found = [&](const char* name) {
    const auto path = FindVision(folder.Write(name, "x"));
    return path.has_value() ? std::filesystem::path(*path).filename().string() : "none";
  };
  EXPECT_EQ(found("demo2.Q8_0.gguf"), "none");
  folder.Write("demo2.mmproj-F16.gguf", "x");
  EXPECT_EQ(found("demo2.Q8_0.gguf"), "demo2.mmproj-F16.gguf");
  EXPECT_EQ(found("demo.Q8_0.gguf"), "none");
  EXPECT_EQ(found("demo2-draft.Q8_0.gguf"), "demo2.mmproj-F16.gguf");
  folder.Write("mmproj-google_gemma-3-4b-it-f16.gguf", "x");
  EXPECT_EQ(found("google_gemma-3-4b-it-Q4_K_M.gguf"), "mmproj-google_gemma-3-4b-it-f16.gguf");
  EXPECT_EQ(found("google_gemma-3-12b-it-Q4_K_M.gguf"), "none");
  folder.Write("mmproj-model-f16-12B.gguf", "x");
  EXPECT_EQ(found("gemma-3-12b-it-q4_0.gguf"), "mmproj-model-f16-12B.gguf");
  // A name without words belongs to every model, but yields to one with words.
  folder.Write("mmproj-BF16.gguf", "x");
  EXPECT_EQ(found("other.gguf"), "mmproj-BF16.gguf");
  EXPECT_EQ(found("demo2.Q8_0.gguf"), "demo2.mmproj-F16.gguf");
  EXPECT_EQ(FindVision(folder.path() + "/missing.gguf"), std::nullopt);
}

TEST(FindVisionTest, AFolderHasItsOwn) {
  const TemporaryFolder folder;
  SmallVisionRelease().Write(folder);
  EXPECT_EQ(FindVision(folder.path()), folder.path());
}

TEST(VisionSourceTest, MustFitTheDecoder) {
  const TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(const auto source,
                       OpenVisionSource(folder.Write("mmproj.gguf", SmallMmproj().Build())));
  EXPECT_OK(CheckVisionFits(*source, 8));
  EXPECT_THAT(CheckVisionFits(*source, 9),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("have 8 numbers, the model's rows 9")));
}

TEST(VisionSourceTest, IsDescribed) {
  const TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(const auto source,
                       OpenVisionSource(folder.Write("mmproj.gguf", SmallMmproj().Build())));
  const std::string text = DescribeVisionSource(*source);
  EXPECT_THAT(text, HasSubstr("8 x 8 pixels, 16 patches of 2 x 2"));
  EXPECT_THAT(text, HasSubstr("4, each of 2 x 2 patches, 8 wide"));
  EXPECT_THAT(text, HasSubstr("v.patch_embd.weight"));
  EXPECT_THAT(text, HasSubstr("39 tensors"));
}

}  // namespace
}  // namespace tandem::loader
