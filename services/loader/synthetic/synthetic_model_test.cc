#include "services/loader/synthetic/synthetic_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "services/common/reference/reference_model.h"
#include "services/common/testing/status_matchers.h"
#include "services/loader/packing/packing_check.h"

namespace tandem::loader {
namespace {

uint64_t TotalBytes(const ModelSource& source) {
  uint64_t bytes = 0;
  for (const SourceTensor& tensor : source.tensors()) bytes += tensor.num_bytes;
  return bytes;
}

TEST(SyntheticModelTest, HasTheSizeOfRealFiles) {
  const auto gigabytes = [](const std::string& name) {
    return static_cast<double>(TotalBytes(**OpenSynthetic("synthetic:" + name))) * 1e-9;
  };
  EXPECT_NEAR(gigabytes("gemma3-27b?type=q4_0"), 15.6, 0.05);
  EXPECT_NEAR(gigabytes("gemma3-27b?type=q8_0"), 28.7, 0.05);
  EXPECT_NEAR(gigabytes("gemma3-27b?type=q4_k_m"), 16.5, 0.1);
  EXPECT_NEAR(gigabytes("gemma3-12b?type=bf16"), 23.5, 0.1);
  EXPECT_NEAR(gigabytes("gemma3-270m?type=q8_0"), 0.285, 0.005);
}

TEST(SyntheticModelTest, PacksInEveryFormat) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const std::string type(Traits(static_cast<DType>(i)).name);
    SCOPED_TRACE(type);
    ASSERT_OK_AND_ASSIGN(
        const auto source,
        OpenSynthetic("synthetic:gemma3-270m?layers=1&hidden=256&ffn=288&head_dim=64&vocab=300"
                      "&type=" +
                      type));
    ExpectPacksExactly(*source, {.max_region_bytes = 100'000});
  }
}

TEST(SyntheticModelTest, ContentIsNamedByShapeFormatAndSeed) {
  std::set<std::string> ids;
  for (const char* options : {"", "?seed=2", "?type=q8_0", "?embedding=q8_0", "?layers=2"}) {
    ids.insert((*OpenSynthetic(std::string("synthetic:gemma3-1b") + options))->content_id());
  }
  EXPECT_EQ(ids.size(), 5u);
  EXPECT_EQ((*OpenSynthetic("synthetic:gemma3-1b"))->content_id(),
            (*OpenSynthetic("synthetic:gemma3-1b?seed=1"))->content_id());
}

TEST(SyntheticModelTest, RefusesToReadPastATensor) {
  const auto source = *OpenSynthetic("synthetic:gemma3-1b");
  const SourceTensor& tensor = source->tensors()[3];
  std::byte byte{};
  EXPECT_OK(source->Read(tensor, tensor.num_bytes - 1, {&byte, 1}));
  EXPECT_THAT(source->Read(tensor, tensor.num_bytes, {&byte, 1}),
              testing::HasCode(absl::StatusCode::kOutOfRange));
}

double RootMeanSquare(std::span<const float> values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// Entropy of softmax(logits), in nats.
double Entropy(std::span<const float> logits) {
  double highest = logits[0], sum = 0, weighted = 0;
  for (const float logit : logits) highest = std::max<double>(highest, logit);
  for (const float logit : logits) {
    sum += std::exp(logit - highest);
    weighted += std::exp(logit - highest) * (logit - highest);
  }
  return std::log(sum) - weighted / sum;
}

struct Shape {
  const char* name;
  const char* options;
};
class SaneActivationsTest : public ::testing::TestWithParam<Shape> {};

// Run as the model that is read would be.
TEST_P(SaneActivationsTest, ResidualsStayOfOrderOneAndNoTokenIsCertain) {
  constexpr uint32_t kVocabulary = 1500, kTokens = 24;
  ASSERT_OK_AND_ASSIGN(const auto source,
                       OpenSynthetic(std::string("synthetic:gemma3-27b?vocab=1500&window=16&") +
                                     GetParam().options));
  auto packed = PackModel(*source, {}, nullptr);
  ASSERT_OK(packed.status());
  const auto weights = MapPacked(*std::move(packed), *source);
  ASSERT_NE(weights, nullptr);
  const reference::ReferenceModel model(*weights);
  std::vector<uint32_t> tokens(kTokens);
  for (uint32_t i = 0; i < kTokens; ++i) tokens[i] = (i * 7919 + 13) % kVocabulary;
  const std::vector<float> logits =
      model.Logits(tokens, [](Stage stage, const reference::Activations& rows) {
        if (stage.kind != StageKind::kFfn && stage.kind != StageKind::kEmbed) return;
        const double rms = RootMeanSquare(rows.residual);
        EXPECT_GT(rms, 0.05) << StageName(stage);
        EXPECT_LT(rms, 30.0) << StageName(stage);
      });
  std::set<size_t> best;
  for (uint32_t i = 0; i < kTokens; ++i) {
    const auto row = std::span(logits).subspan(size_t{i} * kVocabulary, kVocabulary);
    for (const float logit : row) ASSERT_TRUE(std::isfinite(logit));
    const double entropy = Entropy(row);
    EXPECT_GT(entropy, 1.0) << "token " << i;
    EXPECT_LT(entropy, std::log(kVocabulary) - 0.5) << "token " << i;
    best.insert(static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin()));
  }
  EXPECT_GT(best.size(), kTokens / 2) << "what comes next depends on what came before";
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, SaneActivationsTest,
    ::testing::Values(
        Shape{"DeepQ4_0", "type=q4_0&hidden=256&ffn=512&heads=4&kv_heads=2&head_dim=64"},
        Shape{"DeepBf16", "type=bf16&hidden=256&ffn=512&heads=4&kv_heads=2&head_dim=64"},
        Shape{"WideQ8_0", "type=q8_0&layers=3&hidden=1024&ffn=2048&heads=8&kv_heads=4"},
        Shape{"WideQ4_KM", "type=q4_k_m&layers=3&hidden=1024&ffn=2048&heads=8&kv_heads=4"},
        Shape{"WideQ6_K", "type=q6_k&layers=3&hidden=1024&ffn=2048&heads=8&kv_heads=4"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tandem::loader
