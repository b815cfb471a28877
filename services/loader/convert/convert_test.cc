#include "services/loader/convert/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include "absl/strings/str_format.h"
#include "services/common/tensor/quant.h"
#include "services/common/testing/status_matchers.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/formats/testing/release_builder.h"

namespace tandem::loader {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

constexpr char kShape[] =
    "&layers=9&hidden=256&ffn=512&heads=2&kv_heads=1&head_dim=64&vocab=300&window=64";

std::unique_ptr<ModelSource> Synthetic(const std::string& type) {
  return OpenModelSource("synthetic:gemma3-270m?type=" + type + kShape).value();
}

std::vector<float> Numbers(const ModelSource& source, const SourceTensor& tensor) {
  std::vector<std::byte> bytes(tensor.num_bytes);
  EXPECT_OK(source.Read(tensor, 0, bytes));
  std::vector<float> numbers(tensor.shape.rows * tensor.shape.cols);
  DequantizeFileRow(tensor.dtype, bytes, numbers);
  for (float& number : numbers) number += tensor.norm_offset;
  return numbers;
}

// Test data counts up byte by byte and has NaN in it.
bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class ConvertTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/out.gguf"; }
  absl::StatusOr<std::unique_ptr<ModelSource>> Convert(const ModelSource& source,
                                                       const std::string& type,
                                                       ConvertOptions options = {}) {
    options.mix = ParseWeightMix(type).value();
    options.name = "name";
    TANDEM_RETURN_IF_ERROR(ConvertToGguf(source, path(), options, nullptr).status());
    return OpenModelSource(path());
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  TemporaryFolder folder_;
};

TEST_F(ConvertTest, ThePlainFormatKeepsEveryNumberAndWord) {
  const auto source = Synthetic("bf16");
  ASSERT_OK_AND_ASSIGN(const auto written, Convert(*source, "f32"));
  EXPECT_EQ(written->format(), "gguf");
  EXPECT_EQ(written->config(), source->config());
  EXPECT_EQ(written->vocabulary().pieces, source->vocabulary().pieces);
  EXPECT_EQ(written->vocabulary().scores, source->vocabulary().scores);
  EXPECT_EQ(written->vocabulary().types, source->vocabulary().types);
  EXPECT_EQ(written->vocabulary().add_bos, source->vocabulary().add_bos);
  EXPECT_EQ(written->chat_template(), source->chat_template());
  ASSERT_EQ(written->tensors().size(), source->tensors().size());
  const auto slot = [](const SourceTensor& t) { return std::tuple(t.role, t.layer_idx, t.part); };
  std::map<decltype(slot(source->tensors()[0])), const SourceTensor*> by_slot;
  for (const SourceTensor& tensor : source->tensors()) by_slot[slot(tensor)] = &tensor;
  for (const SourceTensor& tensor : written->tensors()) {
    ASSERT_TRUE(by_slot.contains(slot(tensor))) << tensor.name;
    EXPECT_EQ(Numbers(*written, tensor), Numbers(*source, *by_slot[slot(tensor)])) << tensor.name;
  }
}

// A folder whose norms hold w, as Google's do; a GGUF file's hold 1 + w.
TEST_F(ConvertTest, ReleasesBecomeFilesOfTheSameModel) {
  const testing::Release release = testing::SmallRelease();
  TemporaryFolder folder;
  release.Write(folder);
  ASSERT_OK_AND_ASSIGN(const auto source, OpenModelSource(folder.path()));
  ASSERT_OK_AND_ASSIGN(const auto written, Convert(*source, "bf16"));
  EXPECT_EQ(written->config(), source->config());
  EXPECT_EQ(written->vocabulary().pieces, source->vocabulary().pieces);
  ASSERT_EQ(written->tensors().size(), source->tensors().size());
  for (size_t i = 0; i < source->tensors().size(); ++i) {
    const SourceTensor& to = written->tensors()[i];
    EXPECT_EQ(to.norm_offset, 0.0f);
    EXPECT_TRUE(SameBits(Numbers(*written, to), Numbers(*source, source->tensors()[i]))) << to.name;
  }
}

TEST_F(ConvertTest, KeepsStopTokensBesideTheUsualTwo) {
  testing::Release release = testing::SmallRelease();
  const auto stops = [&](const char* listed) -> std::vector<int32_t> {
    release.files["generation_config.json"] =
        absl::StrFormat(R"({"eos_token_id": %s})", std::string(listed));
    TemporaryFolder folder;
    release.Write(folder);
    const auto source = OpenModelSource(folder.path());
    EXPECT_OK(source.status());
    const auto written = Convert(**source, "bf16", {.overwrite = true});
    EXPECT_OK(written.status());
    return written.ok() ? (*written)->config().stop_token_ids : std::vector<int32_t>();
  };
  EXPECT_THAT(stops("5"), ElementsAre(1, 5)) << "<eos> and <end_of_turn> whatever the list";
  EXPECT_THAT(stops("[1, 5, 9]"), ElementsAre(1, 9, 5));
}

TEST_F(ConvertTest, ANumberThatDoesNotFitIsNamedWithItsTensorAndAWayOut) {
  testing::Release release = testing::SmallRelease();
  for (auto& tensor : release.tensors) std::fill(tensor.data.begin(), tensor.data.end(), '\0');
  const auto message_with = [&](const std::string& name, const char* bf16, const char* type) {
    const std::string before = release.FindTensor(name).data;
    release.FindTensor(name).data.replace(2, 2, bf16, 2);
    TemporaryFolder folder;
    release.Write(folder);
    release.FindTensor(name).data = before;
    const auto source = OpenModelSource(folder.path());
    EXPECT_OK(source.status());
    const absl::Status status = Convert(**source, type, {.overwrite = true}).status();
    EXPECT_OK(Convert(**source, "bf16", {.overwrite = true}).status());
    return std::string(status.message());
  };
  const std::string down = "model.layers.0.mlp.down_proj.weight";
  const std::string message = message_with(down, "\x89\x47", "f16");
  EXPECT_THAT(message, HasSubstr("'" + down + "' holds 70144, which does not fit f16"));
  EXPECT_THAT(message, HasSubstr("--type bf16 or f32 keeps it"));
  EXPECT_THAT(message_with("model.embed_tokens.weight", "\x89\xC7", "f16"),
              HasSubstr("holds -70144, which does not fit f16 (numbers up to 65504): --embedding"));
  EXPECT_THAT(message_with(down, "\x80\x7F", "f16"), HasSubstr("holds inf, which no weight is"));
  EXPECT_THAT(Files(), ElementsAre("out.gguf"));
}

TEST_F(ConvertTest, RowsThatAreNoWholeBlocksAreRefused) {
  TemporaryFolder folder;
  testing::SmallRelease().Write(folder);
  ASSERT_OK_AND_ASSIGN(const auto source, OpenModelSource(folder.path()));
  for (const char* type : {"q8_0", "q4_k_m"}) {
    const absl::Status status = Convert(*source, type).status();
    EXPECT_THAT(status, tandem::testing::HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(status.message(), HasSubstr("blocks of 32"));
  }
  EXPECT_THAT(Files(), ElementsAre());
}

TEST_F(ConvertTest, MixesGiveEachMatrixItsFormat) {
  ASSERT_OK_AND_ASSIGN(const auto written, Convert(*Synthetic("f32"), "q4_k_m"));
  std::vector<uint32_t> six_bits;
  for (const SourceTensor& tensor : written->tensors()) {
    if (IsNorm(tensor.role)) {
      EXPECT_EQ(tensor.dtype, DType::kF32);
    } else if (tensor.part == SourcePart::kV) {
      if (tensor.dtype == DType::kQ6_K) six_bits.push_back(tensor.layer_idx);
    } else if (tensor.role == WeightRole::kOut) {
      EXPECT_EQ(tensor.dtype, DType::kQ5_0) << "128 columns are no multiple of 256";
    } else if (tensor.role == WeightRole::kEmbedding) {
      EXPECT_EQ(tensor.dtype, DType::kQ6_K);
    } else if (tensor.role == WeightRole::kGateUp) {
      EXPECT_EQ(tensor.dtype, DType::kQ4_K);
    }
  }
  EXPECT_THAT(six_bits, ElementsAre(0, 3, 6, 7, 8));
}

TEST_F(ConvertTest, RefusesWhatWouldLoseAndLeavesNothingBehind) {
  const auto quantised = Synthetic("q4_0");
  const auto refused = Convert(*quantised, "q8_0").status();
  EXPECT_THAT(refused, tandem::testing::HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(refused.message(), HasSubstr("--requantise"));
  EXPECT_THAT(Files(), ElementsAre());
  EXPECT_OK(Convert(*quantised, "q4_0"));
  EXPECT_THAT(Convert(*quantised, "q4_0").status(),
              tandem::testing::HasCode(absl::StatusCode::kAlreadyExists));
  EXPECT_OK(Convert(*quantised, "q8_0", {.overwrite = true, .requantise = true}));
  EXPECT_THAT(Files(), ElementsAre("out.gguf"));
}

TEST_F(ConvertTest, StopsWhenAskedAndLeavesNothingBehind) {
  const auto source = OpenModelSource("synthetic:gemma3-270m?type=bf16&layers=2").value();
  const auto status = ConvertToGguf(*source, path(), {.mix = ParseWeightMix("q4_k").value()},
                                    [](const ConvertProgress&) { return false; })
                          .status();
  EXPECT_THAT(status, tandem::testing::HasCode(absl::StatusCode::kCancelled));
  EXPECT_THAT(Files(), ElementsAre());
}

TEST_F(ConvertTest, AFolderThatIsNotThereIsNamed) {
  const auto status =
      ConvertToGguf(*Synthetic("f16"), "/nonexistent/out.gguf", {}, nullptr).status();
  EXPECT_THAT(status.message(), HasSubstr("/nonexistent/out.gguf"));
}

}  // namespace
}  // namespace tandem::loader
