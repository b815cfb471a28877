#include "services/loader/formats/gguf_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "services/common/testing/status_matchers.h"
#include "services/loader/formats/testing/gguf_builder.h"

namespace tandem::loader {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;
using namespace testing;  // the builders

absl::StatusOr<OpenedModel> Interpret(const GgufBuilder& builder) {
  const std::string file = builder.Build();
  TANDEM_ASSIGN_OR_RETURN(const GgufHeader header, ParseGguf(SpanSource(file)));
  return InterpretGguf(header);
}

void ExpectRefused(const GgufBuilder& builder, const std::string& reason) {
  EXPECT_THAT(Interpret(builder), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(reason)));
}

// The small model with this many layers, all sharing the first one's shapes.
GgufBuilder WithLayers(uint32_t num_layers) {
  GgufBuilder builder = SmallGguf();
  builder.SetU32("gemma3.block_count", num_layers);
  const std::vector<GgufBuilder::Tensor> first = builder.tensors;
  for (uint32_t layer = 1; layer < num_layers; ++layer) {
    for (GgufBuilder::Tensor tensor : first) {
      if (!tensor.name.starts_with("blk.0.")) continue;
      tensor.name = "blk." + std::to_string(layer) + tensor.name.substr(5);
      builder.tensors.push_back(tensor);
    }
  }
  return builder;
}

TEST(GgufModelTest, FillsTheWholeConfiguration) {
  ASSERT_OK_AND_ASSIGN(const OpenedModel model, Interpret(SmallGguf()));
  EXPECT_EQ(model.config.vocab_size, 10u);
  EXPECT_EQ(model.config.attention_scale, 1.0f / std::sqrt(8.0f));
  EXPECT_EQ(model.config.embedding_scale, std::sqrt(8.0f));
  EXPECT_EQ(model.config.rope_theta_local, 1e4f);
  EXPECT_EQ(model.config.stop_token_ids, (std::vector<int32_t>{1, 5}));
  EXPECT_EQ(model.vocabulary.types[4], TokenType::kUserDefined);
  EXPECT_EQ(model.chat_template, "{{ bos_token }}");
  for (const SourceTensor& tensor : model.tensors) EXPECT_EQ(tensor.norm_offset, 0.0f);
}

TEST(GgufModelTest, SixtyTwoLayersScaleAttentionByHiddenOverHeads) {
  ASSERT_OK_AND_ASSIGN(const OpenedModel small, Interpret(WithLayers(61)));
  EXPECT_EQ(small.config.attention_scale, 1.0f / std::sqrt(8.0f));  // head_dim
  GgufBuilder builder = WithLayers(62);
  ASSERT_OK_AND_ASSIGN(const OpenedModel big, Interpret(builder));
  EXPECT_EQ(big.config.attention_scale, 0.5f);  // (8 / 2 heads)^-0.5
  builder.SetF32("gemma3.attention.scale", 0.0771517f);
  ASSERT_OK_AND_ASSIGN(const OpenedModel scaled, Interpret(builder));
  EXPECT_EQ(scaled.config.attention_scale, 0.0771517f);
  EXPECT_TRUE(big.config.is_global(5));
  EXPECT_FALSE(big.config.is_global(61));
}

TEST(GgufModelTest, ReadsRopeScalingAndBases) {
  GgufBuilder builder = SmallGguf();
  builder.SetString("gemma3.rope.scaling.type", "linear");
  builder.SetF32("gemma3.rope.scaling.factor", 8.0f);
  builder.SetF32("gemma3.rope.freq_base", 2e6f);
  builder.SetF32("gemma3.rope.freq_base_swa", 3e4f);
  ASSERT_OK_AND_ASSIGN(const OpenedModel model, Interpret(builder));
  EXPECT_EQ(model.config.rope_scale_global, 8.0f);
  EXPECT_EQ(model.config.rope_theta_global, 2e6f);
  EXPECT_EQ(model.config.rope_theta_local, 3e4f);
  builder.SetString("gemma3.rope.scaling.type", "none");
  ASSERT_OK_AND_ASSIGN(const OpenedModel unscaled, Interpret(builder));
  EXPECT_EQ(unscaled.config.rope_scale_global, 1.0f);
  builder.SetString("gemma3.rope.scaling.type", "yarn");
  ExpectRefused(builder, "gemma3.rope.scaling.type yarn");
}

TEST(GgufModelTest, ReadsTheLayerPatternAsANumberOrAsBools) {
  GgufBuilder builder = WithLayers(3);
  builder.SetU32("gemma3.attention.sliding_window_pattern", 2);
  ASSERT_OK_AND_ASSIGN(const OpenedModel second, Interpret(builder));
  EXPECT_EQ(second.config.layer_is_global, (std::vector<bool>{false, true, false}));
  builder.Set("gemma3.attention.sliding_window_pattern", GgufType::kArray,
              PackedArray<uint8_t>(GgufType::kBool, {0, 1, 1}));
  ASSERT_OK_AND_ASSIGN(const OpenedModel listed, Interpret(builder));
  EXPECT_EQ(listed.config.layer_is_global, (std::vector<bool>{true, false, false}));
  builder.Set("gemma3.attention.sliding_window_pattern", GgufType::kArray,
              PackedArray<uint8_t>(GgufType::kBool, {0, 1}));
  ExpectRefused(builder, "has 2 entries for 3 layers");
}

TEST(GgufModelTest, StopTokensComeFromKeysAndFromPieces) {
  GgufBuilder builder = SmallGguf();
  builder.RemoveKey("tokenizer.ggml.eos_token_id");
  ASSERT_OK_AND_ASSIGN(const OpenedModel by_piece, Interpret(builder));
  EXPECT_EQ(by_piece.config.stop_token_ids, (std::vector<int32_t>{1, 5}));
  builder.SetU32("tokenizer.ggml.eos_token_id", 5);
  // <eos> stays a stop token in files whose end of sequence is <end_of_turn>.
  ASSERT_OK_AND_ASSIGN(const OpenedModel end_of_turn, Interpret(builder));
  EXPECT_EQ(end_of_turn.config.stop_token_ids, (std::vector<int32_t>{5, 1}));
  builder.SetU32("tokenizer.ggml.eot_token_id", 9);
  ASSERT_OK_AND_ASSIGN(const OpenedModel by_key, Interpret(builder));
  EXPECT_EQ(by_key.config.stop_token_ids, (std::vector<int32_t>{5, 9, 1}));
}

TEST(GgufModelTest, TokenIdsOutOfRangeAreRefused) {
  for (const char* key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                          "tokenizer.ggml.eot_token_id"}) {
    GgufBuilder builder = SmallGguf();
    builder.SetU32(key, 10);
    ExpectRefused(builder, std::string(key) + " is 10, must be in [0, 9]");
    builder.SetU32(key, 0xffffffff);
    ExpectRefused(builder, std::string(key) + " is 4294967295");
  }
}

TEST(GgufModelTest, AnOutputMatrixOfItsOwnIsTheHead) {
  GgufBuilder builder = SmallGguf();
  GgufBuilder::Tensor output = builder.FindTensor("token_embd.weight");
  output.name = "output.weight";
  builder.tensors.push_back(output);
  ASSERT_OK_AND_ASSIGN(const OpenedModel model, Interpret(builder));
  EXPECT_EQ(model.tensors[1].role, WeightRole::kHead);
  EXPECT_EQ(model.tensors.size(), 16u);
}

TEST(GgufModelTest, MissingKeysAndTensorsAreNamed) {
  for (const char* key :
       {"general.architecture", "gemma3.block_count", "gemma3.embedding_length",
        "gemma3.attention.head_count", "gemma3.attention.sliding_window", "tokenizer.ggml.tokens",
        "tokenizer.ggml.scores", "tokenizer.ggml.token_type", "tokenizer.ggml.model"}) {
    GgufBuilder builder = SmallGguf();
    builder.RemoveKey(key);
    ExpectRefused(builder, std::string("key ") + key + " is missing");
  }
  const GgufBuilder whole = SmallGguf();
  for (const GgufBuilder::Tensor& tensor : whole.tensors) {
    GgufBuilder builder = whole;
    builder.RemoveTensor(tensor.name);
    ExpectRefused(builder, "tensor " + tensor.name + " is missing");
  }
}

TEST(GgufModelTest, OtherArchitecturesTokenizersAndSplitsAreRefused) {
  GgufBuilder builder = SmallGguf();
  builder.SetString("general.architecture", "llama");
  ExpectRefused(builder, "architecture llama is not supported");
  builder = SmallGguf();
  builder.SetString("tokenizer.ggml.model", "gpt2");
  ExpectRefused(builder, "tokenizer gpt2 is not supported");
  builder = SmallGguf();
  builder.Set("split.count", GgufType::kU16, Packed(uint16_t{3}));
  ExpectRefused(builder, "one of 3 parts");
  builder = SmallGguf();
  builder.SetF32("gemma3.final_logit_softcapping", 30.0f);
  ExpectRefused(builder, "soft capping");
}

TEST(GgufModelTest, ArraysOfTheWrongKindAreRefused) {
  GgufBuilder builder = SmallGguf();
  builder.SetI32s("tokenizer.ggml.tokens", std::vector<int32_t>(10));
  ExpectRefused(builder,
                "tokenizer.ggml.tokens: expected an array of string, file has array of i32");
  builder = SmallGguf();
  builder.SetStrings("tokenizer.ggml.scores", std::vector<std::string>(10, "x"));
  ExpectRefused(builder, "tokenizer.ggml.scores: expected an array of f32");
  builder = SmallGguf();
  builder.SetString("tokenizer.ggml.token_type", "x");
  ExpectRefused(builder, "tokenizer.ggml.token_type: expected an array");
  builder = SmallGguf();
  builder.SetF32s("tokenizer.ggml.scores", std::vector<float>(9));
  ExpectRefused(builder, "9 values for the vocabulary's 10 pieces");
  builder = SmallGguf();
  builder.SetI32s("gemma3.attention.head_count", {2});
  ExpectRefused(builder, "gemma3.attention.head_count: expected an integer, file has array");
}

TEST(GgufModelTest, BadPiecesAreRefused) {
  const auto with = [](size_t i, const std::string& piece, float score, int32_t type) {
    std::vector<SmallPiece> pieces = SmallPieces();
    pieces[i] = {piece, score, type};
    std::vector<std::string> tokens;
    std::vector<float> scores;
    std::vector<int32_t> types;
    for (const SmallPiece& p : pieces) {
      tokens.push_back(p.piece);
      scores.push_back(p.score);
      types.push_back(p.type);
    }
    GgufBuilder builder = SmallGguf();
    builder.SetStrings("tokenizer.ggml.tokens", tokens);
    builder.SetF32s("tokenizer.ggml.scores", scores);
    builder.SetI32s("tokenizer.ggml.token_type", types);
    return builder;
  };
  ExpectRefused(with(7, "", 0, 1), "piece 7 is empty");
  ExpectRefused(with(7, "\xff", 0, 1), "piece 7 is not UTF-8");
  ExpectRefused(with(8, "x", std::nanf(""), 1), "piece 8: score nan");
  ExpectRefused(with(9, "x", 0, 0), "piece 9: type 0");
  ExpectRefused(with(9, "x", 0, 7), "piece 9: type 7");
  ExpectRefused(with(9, "x", 0, -1), "piece 9: type -1");
}

TEST(GgufModelTest, ShapesAreCheckedAgainstTheConfiguration) {
  GgufBuilder builder = SmallGguf();
  builder.SetU32("gemma3.feed_forward_length", 9);
  ExpectRefused(builder, "tensor blk.0.ffn_gate.weight: expected [9, 8], file has [8, 8]");
  builder = SmallGguf();
  builder.SetU32("gemma3.block_count", 2);
  ExpectRefused(builder, "tensor blk.1.attn_norm.weight is missing");
  builder = WithLayers(2);
  builder.SetU32("gemma3.block_count", 1);
  ExpectRefused(builder, "tensor blk.1.");
  builder = SmallGguf();
  builder.SetU32("gemma3.attention.value_length", 4);
  ExpectRefused(builder, "they must be equal");
  builder = SmallGguf();
  builder.SetU32("gemma3.attention.head_count", 0);
  ExpectRefused(builder, "0 heads");
  builder = SmallGguf();
  builder.SetU32("gemma3.block_count", 0xffffffff);
  ExpectRefused(builder, "4294967295 layers");
}

TEST(GgufModelTest, UnknownTensorsAreSkippedButNotInsideALayer) {
  GgufBuilder builder = SmallGguf();
  GgufBuilder::Tensor extra = builder.FindTensor("output_norm.weight");
  extra.name = "v.patch\xff\n";
  builder.tensors.push_back(extra);
  ASSERT_OK_AND_ASSIGN(const OpenedModel model, Interpret(builder));
  ASSERT_EQ(model.skipped.size(), 1u);
  EXPECT_EQ(model.skipped[0].name, "v.patch\\xff\\n");
  for (const char* name : {"blk.0.attn_q.bias", "blk.00.attn_q.weight", "blk.0.new.weight",
                           "blk.99999.attn_q.weight", "blk.-1.attn_q.weight", "blk..x"}) {
    builder.tensors.back().name = name;
    ExpectRefused(builder, std::string("tensor ") + name + " is no part of");
  }
}

}  // namespace
}  // namespace tandem::loader
