// Opens the models that come with the repository.
#include "services/loader/formats/open_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "services/common/base/half.h"
#include "services/common/testing/paths.h"

namespace tandem::loader {
namespace {

std::unique_ptr<ModelSource> Open(const std::string& path) {
  absl::StatusOr<std::unique_ptr<ModelSource>> source = OpenModelSource(path);
  EXPECT_TRUE(source.ok()) << source.status();
  return source.ok() ? *std::move(source) : nullptr;
}

const SourceTensor* Find(const ModelSource& source, WeightRole role, uint32_t layer,
                         SourcePart part) {
  for (const SourceTensor& tensor : source.tensors()) {
    if (tensor.role == role && tensor.layer_idx == layer && tensor.part == part) return &tensor;
  }
  return nullptr;
}

std::vector<float> NormValues(const ModelSource& source, const SourceTensor& tensor) {
  std::vector<std::byte> bytes(tensor.num_bytes);
  EXPECT_TRUE(source.Read(tensor, 0, bytes).ok());
  std::vector<float> values(tensor.shape.cols);
  for (size_t i = 0; i < values.size(); ++i) {
    if (tensor.dtype == DType::kF32) {
      std::memcpy(&values[i], bytes.data() + 4 * i, 4);
    } else {
      uint16_t bits;
      std::memcpy(&bits, bytes.data() + 2 * i, 2);
      values[i] = Bf16ToFloat(bits);
    }
    values[i] += tensor.norm_offset;
  }
  return values;
}

const std::string kDemoGguf = SourcePath("models/demo/demo.Q8_0.gguf");
const std::string kTestData = TestDataPath("");

void ExpectDemo(const ModelSource& source) {
  const ModelConfig& config = source.config();
  EXPECT_EQ(config.num_layers, 12u);
  EXPECT_EQ(config.hidden_dim, 256u);
  EXPECT_EQ(config.ffn_dim, 768u);
  EXPECT_EQ(config.num_heads, 4u);
  EXPECT_EQ(config.num_kv_heads, 2u);
  EXPECT_EQ(config.head_dim, 64u);
  EXPECT_EQ(config.vocab_size, 4096u);
  EXPECT_EQ(config.context_len, 4096u);
  EXPECT_EQ(config.sliding_window, 128u);
  EXPECT_EQ(config.layer_is_global, EverySixthGlobal(12));
  EXPECT_EQ(config.rope_theta_global, 1e6f);
  EXPECT_EQ(config.rope_theta_local, 1e4f);
  EXPECT_EQ(config.rope_scale_global, 1.0f);
  EXPECT_EQ(config.attention_scale, 0.125f);
  EXPECT_EQ(config.embedding_scale, 16.0f);
  EXPECT_EQ(config.bos_token_id, 2);
  EXPECT_EQ(config.stop_token_ids, (std::vector<int32_t>{1, 5}));
  const Vocabulary& vocabulary = source.vocabulary();
  ASSERT_EQ(vocabulary.pieces.size(), 4096u);
  EXPECT_EQ(vocabulary.scores.size(), 4096u);
  EXPECT_EQ(vocabulary.types.size(), 4096u);
  EXPECT_TRUE(vocabulary.add_bos);
  EXPECT_EQ(vocabulary.pieces[5], "<end_of_turn>");
  EXPECT_EQ(vocabulary.types[8], TokenType::kByte);
  EXPECT_NE(source.chat_template().find("<start_of_turn>"), std::string::npos);
  EXPECT_EQ(source.sampling_defaults().top_k, 64u);
  EXPECT_NEAR(*source.sampling_defaults().top_p, 0.95f, 1e-6f);
  EXPECT_EQ(source.tensors().size(), 2u + 13u * 12u);
  EXPECT_EQ(source.content_id().size(), 32u);
}

TEST(ModelSourceTest, OpensTheDemoModelInGguf) {
  const auto source = Open(kDemoGguf);
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(source->format(), "gguf");
  ExpectDemo(*source);
  const SourceTensor* q = Find(*source, WeightRole::kQkv, 11, SourcePart::kQ);
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(q->name, "blk.11.attn_q.weight");
  EXPECT_EQ(q->dtype, DType::kQ8_0);
  EXPECT_EQ(q->shape, (Shape2D{256, 256}));
  EXPECT_EQ(q->num_bytes, 256u * RowBytes(DType::kQ8_0, 256));
}

TEST(ModelSourceTest, OpensQ4FilesWithTheirQ6Embedding) {
  const auto source = Open(kTestData + "/demo.Q4_0.gguf");
  ASSERT_NE(source, nullptr);
  ExpectDemo(*source);
  EXPECT_EQ(Find(*source, WeightRole::kEmbedding, 0, SourcePart::kWhole)->dtype, DType::kQ6_K);
  EXPECT_EQ(Find(*source, WeightRole::kDown, 3, SourcePart::kWhole)->dtype, DType::kQ4_0);
}

TEST(ModelSourceTest, OpensTheDemoModelInSafetensors) {
  const auto source = Open(kTestData + "/demo");
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(source->format(), "safetensors");
  ExpectDemo(*source);
  const SourceTensor* k = Find(*source, WeightRole::kQkv, 0, SourcePart::kK);
  ASSERT_NE(k, nullptr);
  EXPECT_EQ(k->name, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(k->dtype, DType::kBf16);
  EXPECT_EQ(k->shape, (Shape2D{128, 256}));
}

TEST(ModelSourceTest, BothFormatsHoldTheSameVocabulary) {
  const auto gguf = Open(kDemoGguf);
  const auto release = Open(kTestData + "/demo");
  ASSERT_TRUE(gguf != nullptr && release != nullptr);
  EXPECT_EQ(gguf->vocabulary().pieces, release->vocabulary().pieces);
  EXPECT_EQ(gguf->vocabulary().scores, release->vocabulary().scores);
}

TEST(ModelSourceTest, NormsOfBothFormatsAreEqualOnceTheirOffsetIsAdded) {
  const auto gguf = Open(kDemoGguf);
  const auto release = Open(kTestData + "/demo");
  ASSERT_TRUE(gguf != nullptr && release != nullptr);
  for (const SourceTensor& tensor : gguf->tensors()) {
    if (tensor.shape.rows != 1) continue;
    const SourceTensor* other = Find(*release, tensor.role, tensor.layer_idx, tensor.part);
    ASSERT_NE(other, nullptr) << tensor.name;
    // Both add 1 to the same bfloat16 in float32, so they agree to the last bit.
    EXPECT_EQ(NormValues(*gguf, tensor), NormValues(*release, *other)) << tensor.name;
  }
}

TEST(ModelSourceTest, The27BShapeHasItsOwnAttentionScaleAndScaledGlobalRope) {
  const auto source = Open(kTestData + "/random-27b-shape");
  ASSERT_NE(source, nullptr);
  EXPECT_FLOAT_EQ(source->config().attention_scale, 1.0f / std::sqrt(168.0f));
  EXPECT_EQ(source->config().rope_scale_global, 8.0f);
  EXPECT_EQ(source->config().q_dim(), 512u);
}

TEST(ModelSourceTest, ReadRefusesRangesOutsideTheTensor) {
  const auto source = Open(kDemoGguf);
  ASSERT_NE(source, nullptr);
  const SourceTensor& tensor = source->tensors().front();
  std::vector<std::byte> bytes(2);
  EXPECT_TRUE(source->Read(tensor, tensor.num_bytes - 2, bytes).ok());
  EXPECT_EQ(source->Read(tensor, tensor.num_bytes - 1, bytes).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(source->Read(tensor, ~uint64_t{0}, bytes).code(), absl::StatusCode::kOutOfRange);
}

TEST(ModelSourceTest, AMissingPathIsNotFound) {
  EXPECT_EQ(OpenModelSource("/nowhere/model.gguf").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(OpenModelSource(std::string("a\0b", 3)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ModelSourceTest, DescriptionListsEveryTensorAndTheTotals) {
  const auto source = Open(kDemoGguf);
  ASSERT_NE(source, nullptr);
  const std::string text = DescribeModelSource(*source);
  for (const SourceTensor& tensor : source->tensors()) {
    EXPECT_NE(text.find(" " + tensor.name + " "), std::string::npos) << tensor.name;
  }
  EXPECT_NE(text.find("158 tensors"), std::string::npos);
  EXPECT_NE(text.find("gemma3.attention.sliding_window"), std::string::npos);
}

}  // namespace
}  // namespace tandem::loader
