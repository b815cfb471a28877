#include "services/loader/vision/seeing_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "services/common/testing/status_matchers.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/formats/quantization.h"
#include "services/loader/formats/testing/vision_builder.h"
#include "services/loader/vision/vision_source.h"

namespace tandem::loader {
namespace {

using tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace testing;  // the builders

class SeeingModelTest : public ::testing::Test {
 protected:
  std::unique_ptr<ModelSource> Open() const {
    auto source = OpenSeeingModel(folder_.path() + "/small.gguf");
    EXPECT_OK(source.status());
    return source.ok() ? *std::move(source) : nullptr;
  }
  // Text is served, and a warning says why pictures are not.
  void ExpectLeftOut(const std::string& why) const {
    const auto source = Open();
    EXPECT_EQ(source->config().vision, std::nullopt);
    EXPECT_THAT(source->warnings(), ElementsAre(HasSubstr(why)));
    EXPECT_OK(source->config().Validate());
    for (const SourceTensor& tensor : source->tensors()) EXPECT_FALSE(IsVision(tensor.role));
  }

  TemporaryFolder folder_;
  const std::string text_ = folder_.Write("small.gguf", SmallGguf().Build());
};

TEST_F(SeeingModelTest, TheEncodersTensorsFollowTheDecoders) {
  const std::string vision = folder_.Write("small.mmproj.gguf", SmallMmproj().Build());
  const auto source = Open();
  EXPECT_EQ(source->config().vision, SmallVisionConfig());
  EXPECT_OK(source->config().Validate());
  EXPECT_THAT(source->warnings(), IsEmpty());
  ASSERT_OK_AND_ASSIGN(const auto text, OpenModelSource(text_));
  ASSERT_OK_AND_ASSIGN(const auto encoder, OpenVisionSource(vision));
  ASSERT_EQ(source->tensors().size(), text->tensors().size() + encoder->tensors.size());
  for (size_t i = 0; i < source->tensors().size(); ++i) {
    const SourceTensor& tensor = source->tensors()[i];
    EXPECT_EQ(IsVision(tensor.role), i >= text->tensors().size());
    std::vector<std::byte> bytes(tensor.num_bytes), expected(tensor.num_bytes);
    ASSERT_OK(source->Read(tensor, 0, bytes));
    if (IsVision(tensor.role)) {
      const VisionTensor& of = encoder->tensors[i - text->tensors().size()];
      EXPECT_EQ(tensor.role, ToWeightRole(of.role));
      ASSERT_OK(encoder->files[of.file].ReadAt(of.file_offset, expected));
    } else {
      ASSERT_OK(text->Read(text->tensors()[i], 0, expected));
    }
    EXPECT_EQ(bytes, expected) << tensor.name;
  }
  EXPECT_EQ(QuantizationOf(*source), QuantizationOf(*text));
}

TEST_F(SeeingModelTest, ANamedEncoderIsTakenOrRefused) {
  folder_.Write("small.mmproj.gguf", SmallMmproj(0).Build());
  const TemporaryFolder elsewhere;
  const std::string named = elsewhere.Write("eyes.gguf", SmallMmproj(1).Build());
  ASSERT_OK_AND_ASSIGN(const auto source, OpenSeeingModel(text_, named));
  EXPECT_EQ(source->config().vision, SmallVisionConfig());
  EXPECT_NE(source->content_id(), Open()->content_id()) << "the one beside it";
  ASSERT_OK_AND_ASSIGN(const auto blind, OpenSeeingModel(text_, ""));
  EXPECT_EQ(blind->config().vision, std::nullopt);
  EXPECT_THAT(blind->warnings(), IsEmpty());
  EXPECT_THAT(OpenSeeingModel(text_, text_).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no mmproj file")));
  EXPECT_THAT(OpenSeeingModel(text_, folder_.path() + "/nothing").status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("nothing")));
}

TEST_F(SeeingModelTest, TheContentIsThatOfBothFiles) {
  const std::string alone = Open()->content_id();
  folder_.Write("small.mmproj.gguf", SmallMmproj(1).Build());
  const std::string f16 = Open()->content_id();
  folder_.Write("small.mmproj.gguf", SmallMmproj(0).Build());
  EXPECT_NE(alone, f16);
  EXPECT_NE(Open()->content_id(), f16);
}

TEST_F(SeeingModelTest, AReleasesEncoderIsInItsFolder) {
  const TemporaryFolder folder;
  SmallVisionRelease().Write(folder);
  ASSERT_OK_AND_ASSIGN(const auto source, OpenSeeingModel(folder.path()));
  EXPECT_EQ(source->config().vision, SmallVisionConfig());
}

TEST_F(SeeingModelTest, AnEncoderThatCannotBeUsedIsLeftOutWithAWarning) {
  folder_.Write("small.mmproj.gguf", "GGUF and then nothing");
  ExpectLeftOut("small.mmproj.gguf");
  GgufBuilder narrow = SmallMmproj();
  narrow.SetU32("clip.vision.projection_dim", 16);
  GgufBuilder::Tensor& projection = narrow.FindTensor("mm.input_projection.weight");
  projection.dims[0] = 16;
  projection.data += projection.data;
  folder_.Write("small.mmproj.gguf", narrow.Build());
  ExpectLeftOut("another model's");
}

// snapshots/REV/FILE.gguf -> ../../blobs/HASH: both files' targets lie in one folder.
TEST_F(SeeingModelTest, TheEncoderBesideALinkOfADownloadCacheIsFound) {
  const TemporaryFolder cache;
  cache.Write("blobs/0123", SmallGguf().Build());
  cache.Write("blobs/4567", SmallMmproj().Build());
  const std::string snapshot = cache.path() + "/snapshots/rev";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_symlink("../../blobs/0123", snapshot + "/small.gguf");
  std::filesystem::create_symlink("../../blobs/4567", snapshot + "/mmproj-F16.gguf");
  ASSERT_OK_AND_ASSIGN(const auto source, OpenSeeingModel(snapshot + "/small.gguf"));
  EXPECT_EQ(source->config().vision, SmallVisionConfig());
  EXPECT_THAT(source->warnings(), IsEmpty());
}

TEST_F(SeeingModelTest, ALinkOutOfTheFolderIsNotFollowed) {
  const TemporaryFolder elsewhere;
  const std::string target = elsewhere.Write("secret.mmproj.gguf", SmallMmproj().Build());
  std::filesystem::create_symlink(target, folder_.path() + "/mmproj.gguf");
  ExpectLeftOut("link out of the model's folder");
}

}  // namespace
}  // namespace tandem::loader
