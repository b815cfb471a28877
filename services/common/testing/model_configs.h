// Small models in the shapes that break kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/common/model/model_config.h"

namespace tandem::testing {

struct SmallModel {
  uint32_t num_layers = 3;
  uint32_t hidden_dim = 64;
  uint32_t ffn_dim = 96;
  uint32_t num_heads = 4;
  uint32_t num_kv_heads = 2;
  uint32_t head_dim = 64;
  uint32_t vocab_size = 160;
  uint32_t context_len = 256;
  uint32_t sliding_window = 24;
  uint32_t global_every = 2;       // layers (i + 1) % global_every == 0 are global; 0: none
  float rope_scale_global = 1.0f;  // of the global layers
};

// The whole config: scales as Gemma has them, BOS 2 and stop tokens 1 and 5 where the
// vocabulary has them.
ModelConfig MakeConfig(const SmallModel& model);

struct NamedConfig {
  std::string name;  // usable as a test's name
  ModelConfig config;
};

// Head sizes 64, 128 and 256; 1, 2, 4 and 8 query heads to a KV head; hidden and FFN sizes that
// are no multiple of any tile; RoPE scaling; windows shorter than, equal to and longer than a
// block.  All dims are even, some are no multiple of 32 (those exist in plain formats only).
std::vector<NamedConfig> AwkwardConfigs();

}  // namespace tandem::testing
