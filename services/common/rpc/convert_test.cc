#include "services/common/rpc/convert.h"

#include <gtest/gtest.h>

#include <limits>

namespace tandem {
namespace {

ModelConfig SmallConfig() {
  ModelConfig config;
  config.num_layers = 7;
  config.hidden_dim = 64;
  config.ffn_dim = 96;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 32;
  config.vocab_size = 101;
  config.context_len = 512;
  config.sliding_window = 128;
  config.layer_is_global = EverySixthGlobal(7);
  config.rope_scale_global = 8.0f;
  config.attention_scale = 0.0771f;
  config.embedding_scale = 8.0f;
  config.bos_token_id = 2;
  config.stop_token_ids = {1, 100};
  return config;
}

loader::v1::Model ModelWithOneTensor() {
  loader::v1::Model model;
  *model.mutable_config() = ToProto(SmallConfig());
  PackedTensor tensor{WeightRole::kDown,
                      6,
                      {64, 96},
                      {{0, 32, 0, 0, DType::kQ8_0}, {32, 32, 1, 4096, DType::kQ4_0}}};
  *model.add_tensors() = ToProto(tensor);
  model.add_region_bytes(8192);
  model.add_region_bytes(8192);
  return model;
}

TEST(ConvertTest, ConfigsSurviveTheRoundTrip) {
  const ModelConfig config = SmallConfig();
  const auto back = ConfigFromProto(ToProto(config));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ToProto(*back).SerializeAsString(), ToProto(config).SerializeAsString());
  EXPECT_EQ(back->layer_is_global, config.layer_is_global);
  EXPECT_EQ(back->stop_token_ids, config.stop_token_ids);
  EXPECT_EQ(back->attention_scale, config.attention_scale);
}

TEST(ConvertTest, AnEncodersConfigSurvivesToo) {
  ModelConfig config = SmallConfig();
  VisionConfig vision;
  vision.image_size = 12;
  vision.patch_size = 2;
  vision.num_layers = 9;  // more than the decoder has
  vision.hidden_dim = 10;
  vision.ffn_dim = 14;
  vision.num_heads = 2;
  vision.layer_norm_eps = 1e-5f;
  vision.tokens_per_image = 9;
  vision.text_hidden_dim = config.hidden_dim;
  vision.pixels = {.rescale = 1.0 / 127.5, .mean = {0.1f, 0.2f, 0.3f}, .std = {0.4f, 0.5f, 0.6f}};
  config.vision = vision;
  const auto back = ConfigFromProto(ToProto(config));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->vision, config.vision);

  loader::v1::ModelConfig proto = ToProto(config);
  proto.mutable_vision()->set_text_hidden_dim(config.hidden_dim + 1);
  EXPECT_EQ(ConfigFromProto(proto).status().code(), absl::StatusCode::kInvalidArgument);
  proto = ToProto(config);
  proto.mutable_vision()->mutable_pixel_std()->RemoveLast();
  EXPECT_EQ(ConfigFromProto(proto).status().code(), absl::StatusCode::kInvalidArgument);

  // A tensor of the encoder's last layer is one of this model and of no other.
  PackedTensor tensor{
      ToWeightRole(VisionRole::kUpWeight), 8, {14, 10}, {{0, 14, 0, 0, DType::kF16}}};
  loader::v1::Model model;
  *model.add_tensors() = ToProto(tensor);
  model.add_region_bytes(4096);
  EXPECT_TRUE(TensorsFromProto(model, config).ok());
  EXPECT_FALSE(TensorsFromProto(model, SmallConfig()).ok());
  model.mutable_tensors(0)->set_layer_idx(9);
  EXPECT_FALSE(TensorsFromProto(model, config).ok());
}

TEST(ConvertTest, TensorsSurviveTheRoundTrip) {
  const auto tensors = TensorsFromProto(ModelWithOneTensor(), SmallConfig());
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 1u);
  EXPECT_EQ((*tensors)[0].Name(), "layer 6 down");
  EXPECT_EQ(ToProto((*tensors)[0]).SerializeAsString(),
            ModelWithOneTensor().tensors(0).SerializeAsString());
}

TEST(ConvertTest, RefusesConfigsThatMakeNoSense) {
  for (const auto& spoil : std::vector<void (*)(loader::v1::ModelConfig&)>{
           [](auto& c) { c.set_num_layers(0); }, [](auto& c) { c.set_num_layers(4'000'000'000u); },
           [](auto& c) { c.add_layer_is_global(true); },
           [](auto& c) { c.set_attention_scale(std::numeric_limits<float>::quiet_NaN()); },
           [](auto& c) { c.add_stop_token_ids(101); }}) {
    loader::v1::ModelConfig proto = ToProto(SmallConfig());
    spoil(proto);
    EXPECT_EQ(ConfigFromProto(proto).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ConvertTest, RefusesTensorsThatLeaveTheirRegionsOrTheEnums) {
  for (const auto& spoil : std::vector<void (*)(loader::v1::Model&)>{
           [](auto& m) { m.mutable_tensors(0)->set_role(kNumWeightRoles); },
           [](auto& m) { m.mutable_tensors(0)->set_role(0xFFFFFFFFu); },
           [](auto& m) { m.mutable_tensors(0)->mutable_shards(1)->set_dtype(kNumDTypes); },
           [](auto& m) { m.mutable_tensors(0)->set_layer_idx(7); },
           [](auto& m) { m.mutable_tensors(0)->set_rows(63); },
           [](auto& m) { m.mutable_tensors(0)->mutable_shards(1)->set_region(2); },
           [](auto& m) { m.mutable_tensors(0)->mutable_shards(1)->set_offset(8192); },
           [](auto& m) { m.mutable_tensors(0)->mutable_shards(1)->set_offset(~0ull - 4095); },
           [](auto& m) { m.set_region_bytes(0, 100); }}) {
    loader::v1::Model model = ModelWithOneTensor();
    spoil(model);
    EXPECT_EQ(TensorsFromProto(model, SmallConfig()).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tandem
