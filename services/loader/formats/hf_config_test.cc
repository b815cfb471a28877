// Configurations of Google's releases, as published and as newer transformers save them.
#include "services/loader/formats/hf_config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "services/common/testing/status_matchers.h"
#include "services/loader/formats/json.h"

namespace tandem::loader {
namespace {

using nlohmann::json;
using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

constexpr const char* k1B = R"({
  "architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid",
  "eos_token_id": [1, 106], "final_logit_softcapping": null, "head_dim": 256,
  "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "initializer_range": 0.02,
  "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
  "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1, "pad_token_id": 0,
  "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
  "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6,
  "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 262144})";
constexpr const char* k4B = R"({
  "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
  "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144,
  "initializer_range": 0.02, "mm_tokens_per_image": 256, "model_type": "gemma3",
  "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
    "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "sliding_window": 1024},
  "torch_dtype": "bfloat16",
  "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
    "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 27,
    "patch_size": 14, "vision_use_head": false}})";
constexpr const char* k27B = R"({
  "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
  "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144,
  "model_type": "gemma3",
  "text_config": {"head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504,
    "model_type": "gemma3_text", "num_attention_heads": 32, "num_hidden_layers": 62,
    "num_key_value_heads": 16, "query_pre_attn_scalar": 168,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
  "torch_dtype": "bfloat16"})";

json Parse(const std::string& text) {
  absl::StatusOr<json> document = ParseJson(text);
  EXPECT_TRUE(document.ok()) << document.status();
  return document.ok() ? *document : json();
}

json& TextOf(json& config) {
  return config.contains("text_config") ? config["text_config"] : config;
}

// The spelling of newer transformers: rope_parameters and layer_types, all of it written out.
json NewStyle(json config) {
  json& text = TextOf(config);
  json global = {{"rope_theta", 1000000.0}, {"rope_type", "default"}};
  if (text.contains("rope_scaling") && !text["rope_scaling"].is_null()) {
    global["rope_type"] = "linear";
    global["factor"] = text["rope_scaling"]["factor"];
  }
  text["rope_parameters"] = {
      {"full_attention", global},
      {"sliding_attention", {{"rope_theta", 10000.0}, {"rope_type", "default"}}}};
  text["layer_types"] = json::array();
  for (int i = 0; i < text["num_hidden_layers"].get<int>(); ++i) {
    text["layer_types"].push_back((i + 1) % 6 == 0 ? "full_attention" : "sliding_attention");
  }
  for (const char* old :
       {"rope_theta", "rope_local_base_freq", "rope_scaling", "sliding_window_pattern"}) {
    text.erase(old);
  }
  text["dtype"] = "bfloat16";
  text["use_bidirectional_attention"] = false;
  return config;
}

// What the releases have in common, and what the caller's numbers say.
void ExpectGemma(const ModelConfig& config) {
  EXPECT_EQ(config.layer_is_global, EverySixthGlobal(config.num_layers));
  EXPECT_EQ(config.rope_theta_global, 1e6f);
  EXPECT_EQ(config.rope_theta_local, 1e4f);
  EXPECT_EQ(config.rms_norm_eps, 1e-6f);
  EXPECT_EQ(config.bos_token_id, 2);
  EXPECT_EQ(config.stop_token_ids, (std::vector<int32_t>{1, 106}));
  EXPECT_EQ(config.embedding_scale, std::sqrt(static_cast<float>(config.hidden_dim)));
}

class ReleaseConfigTest : public ::testing::TestWithParam<bool> {
 protected:
  absl::StatusOr<ReleaseConfig> Read(const char* text) const {
    const json config = Parse(text);
    return ReadReleaseConfig(GetParam() ? NewStyle(config) : config, json());
  }
};
INSTANTIATE_TEST_SUITE_P(Spelling, ReleaseConfigTest, ::testing::Bool(),
                         [](const auto& spelling) { return spelling.param ? "New" : "Old"; });

TEST_P(ReleaseConfigTest, ReadsThe1BRelease) {
  ASSERT_OK_AND_ASSIGN(const ReleaseConfig release, Read(k1B));
  const ModelConfig& config = release.model;
  ExpectGemma(config);
  EXPECT_EQ(config.num_layers, 26u);
  EXPECT_EQ(config.hidden_dim, 1152u);
  EXPECT_EQ(config.ffn_dim, 6912u);
  EXPECT_EQ(config.num_heads, 4u);
  EXPECT_EQ(config.num_kv_heads, 1u);
  EXPECT_EQ(config.head_dim, 256u);
  EXPECT_EQ(config.vocab_size, 262144u);
  EXPECT_EQ(config.context_len, 32768u);
  EXPECT_EQ(config.sliding_window, 512u);
  EXPECT_EQ(config.rope_scale_global, 1.0f);
  EXPECT_EQ(config.attention_scale, 1.0f / 16.0f);
  EXPECT_TRUE(release.tied);
}

TEST_P(ReleaseConfigTest, ReadsThe4BReleaseWhoseTextPartLeavesOutTheDefaults) {
  ASSERT_OK_AND_ASSIGN(const ReleaseConfig release, Read(k4B));
  const ModelConfig& config = release.model;
  ExpectGemma(config);
  EXPECT_EQ(config.num_layers, 34u);
  EXPECT_EQ(config.hidden_dim, 2560u);
  EXPECT_EQ(config.ffn_dim, 10240u);
  EXPECT_EQ(config.num_heads, 8u);
  EXPECT_EQ(config.num_kv_heads, 4u);
  EXPECT_EQ(config.head_dim, 256u);
  EXPECT_EQ(config.vocab_size, 262208u);
  EXPECT_EQ(config.context_len, 131072u);
  EXPECT_EQ(config.sliding_window, 1024u);
  EXPECT_EQ(config.rope_scale_global, 8.0f);
  EXPECT_EQ(config.attention_scale, 1.0f / 16.0f);
  EXPECT_TRUE(release.tied);
}

TEST_P(ReleaseConfigTest, ReadsThe27BRelease) {
  ASSERT_OK_AND_ASSIGN(const ReleaseConfig release, Read(k27B));
  const ModelConfig& config = release.model;
  ExpectGemma(config);
  EXPECT_EQ(config.num_layers, 62u);
  EXPECT_EQ(config.hidden_dim, 5376u);
  EXPECT_EQ(config.ffn_dim, 21504u);
  EXPECT_EQ(config.num_heads, 32u);
  EXPECT_EQ(config.num_kv_heads, 16u);
  EXPECT_EQ(config.head_dim, 128u);
  EXPECT_EQ(config.vocab_size, 262208u);
  EXPECT_EQ(config.sliding_window, 1024u);
  EXPECT_EQ(config.rope_scale_global, 8.0f);
  EXPECT_FLOAT_EQ(config.attention_scale, 1.0f / std::sqrt(168.0f));
}

TEST(HfConfigTest, DefaultsAreThoseOfTransformers) {
  ASSERT_OK_AND_ASSIGN(const ReleaseConfig release,
                       ReadReleaseConfig(Parse(R"({"model_type": "gemma3_text"})"), json()));
  EXPECT_EQ(release.model.sliding_window, 4096u);
  EXPECT_EQ(release.model.num_heads, 8u);
  EXPECT_EQ(release.model.num_kv_heads, 4u);
  EXPECT_EQ(release.model.vocab_size, 262208u);
  EXPECT_EQ(release.model.stop_token_ids, (std::vector<int32_t>{1}));
}

TEST(HfConfigTest, ReadsTheOtherSpellingsOfRopeAndPattern) {
  json config = Parse(k1B);
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 4}};
  config["sliding_window_pattern"] = 3;
  ASSERT_OK_AND_ASSIGN(const ReleaseConfig old, ReadReleaseConfig(config, json()));
  EXPECT_EQ(old.model.rope_scale_global, 4.0f);
  EXPECT_EQ(old.model.layer_is_global, EverySixthGlobal(26, 3));
  config.erase("sliding_window_pattern");
  config["_sliding_window_pattern"] = 5;
  config["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 5e5}};
  ASSERT_OK_AND_ASSIGN(const ReleaseConfig flat, ReadReleaseConfig(config, json()));
  EXPECT_EQ(flat.model.rope_scale_global, 2.0f);
  EXPECT_EQ(flat.model.rope_theta_global, 5e5f);
  EXPECT_EQ(flat.model.layer_is_global, EverySixthGlobal(26, 5));
}

TEST(HfConfigTest, TheGenerationConfigComesFirst) {
  const json generation =
      Parse(R"({"eos_token_id": [106, 1, 106], "bos_token_id": 7, "top_k": 64, "top_p": 0.95})");
  ASSERT_OK_AND_ASSIGN(const ReleaseConfig release, ReadReleaseConfig(Parse(k4B), generation));
  EXPECT_EQ(release.model.stop_token_ids, (std::vector<int32_t>{106, 1}));
  EXPECT_EQ(release.model.bos_token_id, 7);
  EXPECT_EQ(release.sampling.top_k, 64u);
  EXPECT_EQ(release.sampling.top_p, 0.95f);
  EXPECT_EQ(release.sampling.temperature, std::nullopt);
}

struct BadMember {
  const char* name;
  json value;
  const char* reason;
};

TEST(HfConfigTest, NamesTheMemberThatIsWrong) {
  const BadMember cases[] = {
      {"model_type", "llama", "model_type llama is not supported"},
      {"hidden_size", "many", "hidden_size is \"many\", expected an integer"},
      {"hidden_size", -1, "hidden_size is -1"},
      {"hidden_size", 1.5, "hidden_size is 1.5"},
      {"hidden_size", 0, "hidden_dim is 0"},
      {"hidden_size", uint64_t{1} << 63, "hidden_size is 9223372036854775808"},
      {"num_hidden_layers", 2000000000, "num_hidden_layers is 2000000000"},
      {"num_key_value_heads", 3, "num_heads 4 is not a multiple"},
      {"head_dim", 255, "head_dim 255 is odd"},
      {"vocab_size", 1 << 30, "vocab_size is 1073741824"},
      {"query_pre_attn_scalar", 0, "attention_scale is inf"},
      {"query_pre_attn_scalar", -1, "attention_scale is"},
      {"rms_norm_eps", 1e300, "rms_norm_eps is 1e+300, expected a finite float"},
      {"rope_theta", json::array(), "rope_theta is [], expected a number"},
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 8}}, "rope_type is yarn"},
      {"rope_scaling", {{"rope_type", "linear"}}, "factor is missing"},
      {"rope_scaling", 8, "rope_scaling is 8, expected an object"},
      {"rope_parameters",
       {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 8}}}},
       "only global layers"},
      {"layer_types", json::array({"full_attention"}), "1 entries for 26 layers"},
      {"layer_types", json(std::vector<std::string>(26, "chunked")), "layer_types has \"chunked\""},
      {"eos_token_id", json::array({1, 262144}), "eos_token_id is 262144"},
      {"eos_token_id", -1, "eos_token_id is -1"},
      {"bos_token_id", 1 << 20, "bos_token_id is 1048576"},
      {"final_logit_softcapping", 30.0, "soft capping"},
      {"attention_bias", true, "attention_bias is true"},
      {"use_bidirectional_attention", true, "use_bidirectional_attention is true"},
      {"hidden_activation", "silu", "hidden_activation is silu"},
      {"tie_word_embeddings", "yes", "tie_word_embeddings is \"yes\""},
  };
  for (const BadMember& bad : cases) {
    json config = Parse(k1B);
    config[bad.name] = bad.value;
    EXPECT_THAT(ReadReleaseConfig(config, json()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(bad.reason)))
        << bad.name;
  }
  EXPECT_THAT(ReadReleaseConfig(json::array(), json()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no object")));
  EXPECT_THAT(ReadReleaseConfig(Parse(R"({"model_type": "gemma3"})"), json()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("text_config is missing")));
}

}  // namespace
}  // namespace tandem::loader
