#include "services/loader/synthetic/synthetic_spec.h"

#include <gtest/gtest.h>

#include <cmath>

#include "services/common/testing/status_matchers.h"

namespace tandem::loader {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

TEST(SyntheticSpecTest, KnowsTheReleasedShapes) {
  struct KnownShape {
    const char* name;
    uint32_t layers, hidden, ffn, heads, kv_heads, head_dim, vocab, window;
  };
  for (const KnownShape& shape : {KnownShape{"270m", 18, 640, 2048, 4, 1, 256, 262144, 512},
                                  KnownShape{"1b", 26, 1152, 6912, 4, 1, 256, 262144, 512},
                                  KnownShape{"4b", 34, 2560, 10240, 8, 4, 256, 262208, 1024},
                                  KnownShape{"12b", 48, 3840, 15360, 16, 8, 256, 262208, 1024},
                                  KnownShape{"27b", 62, 5376, 21504, 32, 16, 128, 262208, 1024}}) {
    SCOPED_TRACE(shape.name);
    ASSERT_OK_AND_ASSIGN(const SyntheticSpec spec,
                         ParseSyntheticName(std::string("synthetic:gemma3-") + shape.name));
    const ModelConfig& config = spec.config;
    EXPECT_EQ(config.num_layers, shape.layers);
    EXPECT_EQ(config.hidden_dim, shape.hidden);
    EXPECT_EQ(config.ffn_dim, shape.ffn);
    EXPECT_EQ(config.num_heads, shape.heads);
    EXPECT_EQ(config.num_kv_heads, shape.kv_heads);
    EXPECT_EQ(config.head_dim, shape.head_dim);
    EXPECT_EQ(config.vocab_size, shape.vocab);
    EXPECT_EQ(config.sliding_window, shape.window);
    EXPECT_TRUE(config.is_global(5));
    EXPECT_FALSE(config.is_global(4));
    // 5376 / 32 = 168, the release's query_pre_attn_scalar.
    EXPECT_FLOAT_EQ(config.attention_scale, 1.0f / std::sqrt(shape.layers == 62 ? 168.0f : 256.0f));
    EXPECT_OK(config.Validate());
  }
}

TEST(SyntheticSpecTest, TheSameModelHasOneNameHoweverItIsAskedFor) {
  ASSERT_OK_AND_ASSIGN(const SyntheticSpec plain, ParseSyntheticName("synthetic:gemma3-27b"));
  EXPECT_EQ(plain.name, "synthetic:gemma3-27b?type=q4_0&embedding=q6_k&seed=1");
  ASSERT_OK_AND_ASSIGN(
      const SyntheticSpec spelt,
      ParseSyntheticName("synthetic:gemma3-27b?seed=1&layers=62&embedding=q6_k&type=q4_0"));
  EXPECT_EQ(spelt.name, plain.name);
  ASSERT_OK_AND_ASSIGN(const SyntheticSpec other,
                       ParseSyntheticName("synthetic:gemma3-1b?layers=2&type=bf16&seed=7"));
  EXPECT_EQ(other.name, "synthetic:gemma3-1b?type=bf16&embedding=bf16&seed=7&layers=2");
  EXPECT_EQ(other.config.num_layers, 2u);
}

TEST(SyntheticSpecTest, EmbeddingsHaveTheFormatOfRealFiles) {
  const auto embedding = [](const char* options) {
    return ParseSyntheticName(std::string("synthetic:gemma3-4b?") + options).value().mix.embedding;
  };
  EXPECT_EQ(embedding("type=q4_0"), DType::kQ6_K);
  EXPECT_EQ(embedding("type=q6_k"), DType::kQ6_K);
  EXPECT_EQ(embedding("type=q8_0"), DType::kQ8_0);
  EXPECT_EQ(embedding("type=bf16"), DType::kBf16);
  EXPECT_EQ(embedding("type=q4_0&embedding=q4_0"), DType::kQ4_0);
  // 640 and 1152 columns are no multiple of 256.
  EXPECT_EQ(FormatForColumns(DType::kQ6_K, 640), DType::kQ8_0);
  EXPECT_EQ(FormatForColumns(DType::kQ6_K, 6912), DType::kQ6_K);
  EXPECT_EQ(FormatForColumns(DType::kQ4_0, 640), DType::kQ4_0);
  EXPECT_EQ(FormatForColumns(DType::kQ4_K, 640), DType::kQ5_0);
  EXPECT_EQ(FormatForColumns(DType::kQ5_K, 640), DType::kQ8_0);
}

TEST(SyntheticSpecTest, MixesGiveSomeLayersMoreBits) {
  ASSERT_OK_AND_ASSIGN(const SyntheticSpec spec,
                       ParseSyntheticName("synthetic:gemma3-4b?type=q4_k_m"));
  EXPECT_TRUE(spec.mix.mixed);
  EXPECT_EQ(spec.mix.type, DType::kQ4_K);
  EXPECT_EQ(spec.mix.embedding, DType::kQ6_K);
  EXPECT_EQ(spec.name, "synthetic:gemma3-4b?type=q4_k_m&embedding=q6_k&seed=1");
  EXPECT_FALSE(ParseSyntheticName("synthetic:gemma3-4b?type=q4_k")->mix.mixed);
  // 34 layers: the first 4, every third after, and from layer 29 on.
  std::vector<uint32_t> more;
  for (uint32_t i = 0; i < 34; ++i) {
    if (GetsMoreBits(i, 34)) more.push_back(i);
  }
  EXPECT_EQ(more,
            (std::vector<uint32_t>{0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 29, 30, 31, 32, 33}));
}

TEST(SyntheticSpecTest, RefusesWhatItDoesNotKnowAndSaysWhatItDoes) {
  const auto expect = [](const std::string& name, const std::string& message) {
    EXPECT_THAT(ParseSyntheticName(name).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << name;
  };
  expect("gemma3-27b", "does not begin with 'synthetic:'");
  expect("synthetic:", "there is no shape ''; use one of gemma3-270m, gemma3-1b");
  expect("synthetic:gemma3-2b?type=q4_0", "there is no shape 'gemma3-2b'");
  expect("synthetic:gemma3-1b?type=q3_k", "there is no format 'q3_k'; use one of f32, f16");
  expect("synthetic:gemma3-1b?embedding=", "there is no format ''");
  expect("synthetic:gemma3-1b?embedding=q4_k_m", "there is no format 'q4_k_m'");
  expect("synthetic:gemma3-1b?typ=q4_0", "there is no option 'typ'; use type, embedding, seed");
  expect("synthetic:gemma3-1b?type", "'type' is not NAME=VALUE");
  expect("synthetic:gemma3-1b?", "'' is not NAME=VALUE");
  expect("synthetic:gemma3-1b?seed=1&seed=2", "seed is given twice");
  expect("synthetic:gemma3-1b?seed=-1", "seed=-1: a whole number is expected");
  expect("synthetic:gemma3-1b?layers=4294967296", "layers=4294967296: a whole number");
  expect("synthetic:gemma3-1b?layers=0", "num_layers is 0");
  expect("synthetic:gemma3-1b?layers=2000", "num_layers is 2000");
  expect("synthetic:gemma3-1b?hidden=100", "hidden is 100, must be a multiple of 32");
  expect("synthetic:gemma3-1b?heads=3&head_dim=40", "heads x head_dim is 120");
  expect("synthetic:gemma3-1b?kv_heads=3", "num_heads 4 is not a multiple of num_kv_heads 3");
  expect("synthetic:gemma3-1b?vocab=271", "vocab is 271, must be 272 at least");
}

}  // namespace
}  // namespace tandem::loader
