#include "services/common/testing/model_configs.h"

#include <cmath>

#include "services/common/base/check.h"

namespace tandem::testing {

ModelConfig MakeConfig(const SmallModel& model) {
  ModelConfig config;
  config.num_layers = model.num_layers;
  config.hidden_dim = model.hidden_dim;
  config.ffn_dim = model.ffn_dim;
  config.num_heads = model.num_heads;
  config.num_kv_heads = model.num_kv_heads;
  config.head_dim = model.head_dim;
  config.vocab_size = model.vocab_size;
  config.context_len = model.context_len;
  config.sliding_window = model.sliding_window;
  config.layer_is_global = EverySixthGlobal(model.num_layers, model.global_every);
  config.rope_scale_global = model.rope_scale_global;
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(model.head_dim));
  config.embedding_scale = std::sqrt(static_cast<float>(model.hidden_dim));
  if (model.vocab_size > 5) {
    config.bos_token_id = 2;
    config.stop_token_ids = {1, 5};
  }
  TANDEM_CHECK(config.Validate().ok());
  return config;
}

std::vector<NamedConfig> AwkwardConfigs() {
  return {
      {"Head64Ratio2", MakeConfig({})},
      {"Head128Ratio1", MakeConfig({.hidden_dim = 96,
                                    .num_heads = 2,
                                    .num_kv_heads = 2,
                                    .head_dim = 128,
                                    .sliding_window = 16,
                                    .rope_scale_global = 8.0f})},
      {"Head256Ratio4", MakeConfig({.num_layers = 2,
                                    .hidden_dim = 160,
                                    .ffn_dim = 64,
                                    .num_heads = 4,
                                    .num_kv_heads = 1,
                                    .head_dim = 256,
                                    .sliding_window = 7})},
      {"Head64Ratio8", MakeConfig({.num_layers = 2,
                                   .num_heads = 8,
                                   .num_kv_heads = 1,
                                   .vocab_size = 97,
                                   .sliding_window = 33})},
      // 70 and 106 are no multiples of 4 elements, let alone of a tile.
      {"OddDims", MakeConfig({.num_layers = 2,
                              .hidden_dim = 70,
                              .ffn_dim = 106,
                              .num_heads = 3,
                              .num_kv_heads = 3,
                              .head_dim = 64,
                              .vocab_size = 131,
                              .sliding_window = 1})},
  };
}

}  // namespace tandem::testing
