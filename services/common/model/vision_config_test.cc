#include "services/common/model/vision_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

namespace tandem {
namespace {

// Gemma 3's released encoder.
VisionConfig Released() {
  VisionConfig config;
  config.image_size = 896;
  config.patch_size = 14;
  config.num_layers = 27;
  config.hidden_dim = 1152;
  config.ffn_dim = 4304;
  config.num_heads = 16;
  config.tokens_per_image = 256;
  config.text_hidden_dim = 2560;
  return config;
}

TEST(VisionConfigTest, DerivesPatchesAndPools) {
  const VisionConfig config = Released();
  EXPECT_TRUE(config.Validate().ok()) << config.Validate();
  EXPECT_EQ(config.num_patches(), 4096u);
  EXPECT_EQ(config.head_dim(), 72u);
  EXPECT_EQ(config.patch_dim(), 588u);
  EXPECT_EQ(config.tokens_per_side(), 16u);
  EXPECT_EQ(config.pool_size(), 4u);
}

TEST(VisionConfigTest, NamesTheFieldThatIsWrong) {
  struct Case {
    std::function<void(VisionConfig&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](VisionConfig& c) { c.image_size = 0; }, "image_size is 0"},
      {[](VisionConfig& c) { c.image_size = 1u << 31; }, "image_size is 2147483648"},
      {[](VisionConfig& c) { c.patch_size = 0; }, "patch_size is 0"},
      {[](VisionConfig& c) { c.patch_size = 15; }, "image_size 896 is not a multiple"},
      {[](VisionConfig& c) { c.patch_size = 1; }, "patches of a side is 896"},
      {[](VisionConfig& c) { c.num_layers = 0; }, "num_layers is 0"},
      {[](VisionConfig& c) { c.num_heads = 0; }, "num_heads is 0"},
      {[](VisionConfig& c) { c.num_heads = 7; }, "hidden_dim 1152 is not a multiple"},
      {[](VisionConfig& c) { c.tokens_per_image = 0; }, "tokens_per_image is 0"},
      {[](VisionConfig& c) { c.tokens_per_image = 255; }, "tokens_per_image 255 is no square"},
      {[](VisionConfig& c) { c.tokens_per_image = 225; }, "patches of a side 64 is not a multiple"},
      {[](VisionConfig& c) { c.layer_norm_eps = NAN; }, "layer_norm_eps is nan"},
      {[](VisionConfig& c) { c.pixels.std[1] = 0; }, "image_std is 0"},
      {[](VisionConfig& c) { c.pixels.rescale = INFINITY; }, "rescale factor is inf"},
  };
  for (const Case& test : cases) {
    VisionConfig config = Released();
    test.change(config);
    const absl::Status status = config.Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << test.message;
    EXPECT_NE(std::string(status.message()).find(test.message), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace tandem
