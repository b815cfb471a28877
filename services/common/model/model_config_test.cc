#include "services/common/model/model_config.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

ModelConfig Gemma27B() {
  ModelConfig config;
  config.num_layers = 62;
  config.hidden_dim = 5376;
  config.ffn_dim = 21504;
  config.num_heads = 32;
  config.num_kv_heads = 16;
  config.head_dim = 128;
  config.vocab_size = 262208;
  config.context_len = 131072;
  config.sliding_window = 1024;
  config.layer_is_global = EverySixthGlobal(62);
  config.attention_scale = 0.0771517f;
  config.embedding_scale = 73.3212f;
  return config;
}

TEST(ModelConfigTest, QueryWidthIsHeadsTimesHeadDimNotHiddenDim) {
  const ModelConfig config = Gemma27B();
  ASSERT_TRUE(config.Validate().ok());
  EXPECT_EQ(config.q_dim(), 4096u);
  EXPECT_EQ(config.qkv_dim(), 8192u);
  EXPECT_TRUE(config.is_global(5));
  EXPECT_FALSE(config.is_global(61));
}

TEST(ModelConfigTest, NamesTheFieldThatIsWrong) {
  ModelConfig config = Gemma27B();
  config.num_kv_heads = 5;
  EXPECT_EQ(config.Validate().message(), "num_heads 32 is not a multiple of num_kv_heads 5");
  config = Gemma27B();
  config.stop_token_ids = {262208};
  EXPECT_EQ(config.Validate().message(), "stop token 262208 is outside the vocabulary of 262208");
}

}  // namespace
}  // namespace tandem
