#include "services/loader/convert/convert_vision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include "services/common/testing/status_matchers.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/formats/testing/vision_builder.h"
#include "services/loader/vision/seeing_model.h"

namespace tandem::loader {
namespace {

using tandem::testing::HasCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Release;
using testing::SmallVisionRelease;
using testing::TemporaryFolder;

bool IsVisionTensor(const testing::StoredTensor& tensor) {
  return tensor.name.starts_with("vision_tower.") ||
         tensor.name.starts_with("multi_modal_projector.");
}

// A release whose encoder holds bfloat16 numbers of all bits, in magnitude from 2^-17 to 2^-1.
Release RandomRelease() {
  Release release = SmallVisionRelease();
  uint32_t state = 12345;
  for (auto& tensor : release.tensors) {
    if (!IsVisionTensor(tensor)) continue;
    for (size_t i = 0; i + 1 < tensor.data.size(); i += 2) {
      state = state * 1664525 + 1013904223;
      const uint32_t exponent = 110 + (state >> 20) % 16;
      const uint16_t bits = static_cast<uint16_t>((state >> 16 & 0x807F) | exponent << 7);
      std::memcpy(tensor.data.data() + i, &bits, 2);
    }
  }
  return release;
}

class ConvertVisionTest : public ::testing::Test {
 protected:
  std::unique_ptr<VisionSource> Open(const Release& release) {
    release.Write(folder_);
    auto source = OpenVisionSource(folder_.path());
    EXPECT_OK(source.status());
    return source.ok() ? *std::move(source) : nullptr;
  }
  absl::StatusOr<std::unique_ptr<VisionSource>> Convert(const VisionSource& source, DType type) {
    TANDEM_ASSIGN_OR_RETURN(NewFile file,
                            WriteMmproj(source, path(), {.type = type, .name = "small"}, nullptr));
    TANDEM_RETURN_IF_ERROR(file.Publish(/*overwrite=*/true));
    return OpenVisionSource(path());
  }
  std::string path() const { return out_.path() + "/small.mmproj.gguf"; }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(out_.path())) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  TemporaryFolder folder_, out_;
};

DType FormatIn(const VisionSource& source, VisionRole role) {
  const auto found =
      std::find_if(source.tensors.begin(), source.tensors.end(),
                   [role](const VisionTensor& tensor) { return tensor.role == role; });
  EXPECT_NE(found, source.tensors.end());
  return found->dtype;
}

// The bound of one number's error: half a step of the format.
double Bound(DType format, double number, double block_max) {
  switch (format) {
    case DType::kF16:  // 11 bits; below 2^-14 in steps of 2^-24
      return std::max(std::abs(number) * 0x1p-11, 0x1p-25);
    case DType::kQ8_0:  // steps of the largest / 127, itself rounded to f16
      return block_max / 127 * (0.5 + 127 * 0x1p-11) + 0x1p-18;
    default:  // F32 and, of bfloat16 numbers, BF16
      return 0;
  }
}

void ExpectRoundTrip(const VisionSource& written, const VisionSource& source) {
  EXPECT_EQ(written.config, source.config);
  ASSERT_OK_AND_ASSIGN(const VisionWeights expected, ReadVisionWeights(source));
  ASSERT_OK_AND_ASSIGN(const VisionWeights actual, ReadVisionWeights(written));
  ASSERT_EQ(actual.tensors.size(), expected.tensors.size());
  for (const VisionTensor& tensor : written.tensors) {
    const auto& a = actual.at(tensor.role, tensor.layer_idx);
    const auto& e = expected.at(tensor.role, tensor.layer_idx);
    ASSERT_EQ(a.size(), e.size()) << tensor.name;
    for (size_t i = 0; i < e.size(); ++i) {
      double block_max = 0;
      for (size_t j = i / 32 * 32; j < std::min(e.size(), i / 32 * 32 + 32); ++j) {
        block_max = std::max(block_max, std::abs(static_cast<double>(e[j])));
      }
      ASSERT_LE(std::abs(double{a[i]} - e[i]), Bound(tensor.dtype, e[i], block_max))
          << tensor.name << " number " << i << ": " << a[i] << " instead of " << e[i];
    }
  }
}

TEST_F(ConvertVisionTest, EveryTypeReadsBackAsTheFolderWithinItsRounding) {
  const auto source = Open(RandomRelease());
  for (const DType type : {DType::kF32, DType::kF16, DType::kBf16, DType::kQ8_0}) {
    SCOPED_TRACE(std::string(Traits(type).name));
    ASSERT_OK_AND_ASSIGN(const auto written, Convert(*source, type));
    ExpectRoundTrip(*written, *source);
  }
  EXPECT_THAT(Files(), ElementsAre("small.mmproj.gguf"));
}

TEST_F(ConvertVisionTest, Float32IsEqualToTheBit) {
  const auto source = Open(RandomRelease());
  ASSERT_OK_AND_ASSIGN(const auto written, Convert(*source, DType::kF32));
  ASSERT_OK_AND_ASSIGN(const VisionWeights expected, ReadVisionWeights(*source));
  ASSERT_OK_AND_ASSIGN(const VisionWeights actual, ReadVisionWeights(*written));
  for (const auto& [slot, numbers] : expected.tensors) {
    const auto& read = actual.tensors.at(slot);
    ASSERT_EQ(read.size(), numbers.size());
    EXPECT_EQ(std::memcmp(read.data(), numbers.data(), numbers.size() * sizeof(float)), 0);
  }
}

TEST_F(ConvertVisionTest, FormatsOfTensorsAreLlamaCppsForF16) {
  const auto source = Open(RandomRelease());
  ASSERT_OK_AND_ASSIGN(const auto written, Convert(*source, DType::kF16));
  for (const VisionTensor& tensor : written->tensors) {
    const bool matrix = tensor.name.starts_with("v.blk.") && !IsVector(tensor.role);
    EXPECT_EQ(tensor.dtype,
              matrix || tensor.name == "mm.input_projection.weight" ? DType::kF16 : DType::kF32)
        << tensor.name;
  }
  ASSERT_OK_AND_ASSIGN(const auto q8, Convert(*source, DType::kQ8_0));
  EXPECT_EQ(FormatIn(*q8, VisionRole::kUpWeight), DType::kQ8_0);
  EXPECT_EQ(FormatIn(*q8, VisionRole::kProjection), DType::kF16);
  ASSERT_OK_AND_ASSIGN(const auto bf16, Convert(*source, DType::kBf16));
  EXPECT_EQ(FormatIn(*bf16, VisionRole::kUpWeight), DType::kBf16);
  EXPECT_EQ(FormatIn(*bf16, VisionRole::kProjection), DType::kF32);
}

TEST_F(ConvertVisionTest, KeysAreThoseOfLlamaCpp) {
  const auto source = Open(SmallVisionRelease());
  ASSERT_OK_AND_ASSIGN(const auto written, Convert(*source, DType::kF16));
  const std::map<std::string, std::string> keys(written->metadata.begin(), written->metadata.end());
  const std::map<std::string, std::string> expected = {
      {"general.architecture", "clip"},
      {"general.type", "mmproj"},
      {"general.name", "small"},
      {"general.file_type", "1"},
      {"clip.has_vision_encoder", "true"},
      {"clip.projector_type", "gemma3"},
      {"clip.use_gelu", "true"},
      {"clip.vision.image_size", "8"},
      {"clip.vision.patch_size", "2"},
      {"clip.vision.embedding_length", "32"},
      {"clip.vision.feed_forward_length", "64"},
      {"clip.vision.block_count", "2"},
      {"clip.vision.attention.head_count", "2"},
      {"clip.vision.projection_dim", "8"},
      {"clip.vision.projector.scale_factor", "2"},
  };
  for (const auto& [key, value] : expected) {
    ASSERT_TRUE(keys.contains(key)) << key;
    EXPECT_EQ(keys.at(key), value) << key;
  }
  EXPECT_TRUE(keys.contains("clip.vision.image_mean"));
  EXPECT_TRUE(keys.contains("clip.vision.attention.layer_norm_epsilon"));
}

TEST_F(ConvertVisionTest, RowsThatAreNoWholeBlocksBecomeF16) {
  VisionConfig config = testing::SmallVisionConfig();
  config.ffn_dim = 48;
  ASSERT_OK_AND_ASSIGN(const auto source,
                       OpenVisionSource(folder_.Write("in.gguf", testing::Mmproj(config).Build())));
  ASSERT_OK_AND_ASSIGN(const auto written, Convert(*source, DType::kQ8_0));
  EXPECT_EQ(FormatIn(*written, VisionRole::kDownWeight), DType::kF16);
  EXPECT_EQ(FormatIn(*written, VisionRole::kUpWeight), DType::kQ8_0);
  ExpectRoundTrip(*written, *source);
}

TEST_F(ConvertVisionTest, WhatDoesNotFitIsNamedWithTheWayOutAndLeavesNothing) {
  Release release = SmallVisionRelease();
  const std::string name = "vision_tower.vision_model.encoder.layers.1.mlp.fc2.weight";
  release.FindTensor(name).data.replace(2, 2, "\x89\x47", 2);
  const auto source = Open(release);
  const absl::Status status = Convert(*source, DType::kF16).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("'" + name + "' holds 70144, which does not fit f16"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--mmproj-type bf16 or f32 keeps it"));
  EXPECT_THAT(Files(), ElementsAre());
  EXPECT_OK(Convert(*source, DType::kBf16));
}

TEST_F(ConvertVisionTest, PixelsThatTheFormatCannotSayAreRefused) {
  Release release = SmallVisionRelease();
  std::string& text = release.files["preprocessor_config.json"];
  text.replace(text.find("0.00392156862745098"), 19, "0.5");
  const absl::Status status = Convert(*Open(release), DType::kF16).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(status.message()), HasSubstr("rescale_factor is 0.5"));
}

TEST_F(ConvertVisionTest, StopsWhenAskedAndLeavesNothingBehind) {
  const auto source = Open(SmallVisionRelease());
  const auto status = WriteMmproj(*source, path(), {}, [](const auto&) { return false; }).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kCancelled));
  EXPECT_THAT(Files(), ElementsAre());
}

TEST_F(ConvertVisionTest, TheModelsNameIsTheEncodersWithoutItsFormat) {
  EXPECT_EQ(MmprojBeside("out/gemma.Q4_K_M.gguf", DType::kF16), "out/gemma.mmproj-F16.gguf");
  EXPECT_EQ(MmprojBeside("gemma-3-4b-it-bf16.gguf", DType::kBf16),
            "gemma-3-4b-it.mmproj-BF16.gguf");
  EXPECT_EQ(MmprojBeside("gemma.gguf", DType::kQ8_0), "gemma.mmproj-Q8_0.gguf");
  EXPECT_EQ(MmprojBeside("q8_0.gguf", DType::kF32), "q8_0.mmproj-F32.gguf");
}

TEST_F(ConvertVisionTest, BothFilesAreTheSeeingModelOfTheFolder) {
  SmallVisionRelease().Write(folder_);
  ASSERT_OK_AND_ASSIGN(const auto folder, OpenSeeingModel(folder_.path()));
  const std::string model = out_.path() + "/small.BF16.gguf";
  ASSERT_OK_AND_ASSIGN(const auto text, OpenModelSource(folder_.path()));
  ASSERT_OK(ConvertToGguf(*text, model, {.mix = ParseWeightMix("bf16").value(), .name = "small"},
                          nullptr));
  ASSERT_OK_AND_ASSIGN(const auto encoder, OpenVisionSource(folder_.path()));
  ASSERT_OK_AND_ASSIGN(NewFile file,
                       WriteMmproj(*encoder, MmprojBeside(model, DType::kF16), {}, nullptr));
  ASSERT_OK(file.Publish(false));
  ASSERT_OK_AND_ASSIGN(const auto written, OpenSeeingModel(model));
  EXPECT_EQ(written->config().vision, folder->config().vision);
  EXPECT_EQ(written->tensors().size(), folder->tensors().size());
}

}  // namespace
}  // namespace tandem::loader
