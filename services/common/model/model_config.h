// The numbers of a decoder-only transformer of the Gemma 3 family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/common/model/vision_config.h"

namespace tandem {

// Gemma 3 text decoder (Gemma 3 Technical Report, section 2; layout of Google's releases).
// All of it is resolved: nothing here is "absent means default".
struct ModelConfig {
  std::string architecture = "gemma3";
  uint32_t num_layers = 0;
  uint32_t hidden_dim = 0;
  uint32_t ffn_dim = 0;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;  // independent of hidden_dim / num_heads
  uint32_t vocab_size = 0;
  uint32_t context_len = 0;

  uint32_t sliding_window = 0;        // positions a local layer sees, itself included
  std::vector<bool> layer_is_global;  // [num_layers]; default every sixth: (i + 1) % 6 == 0
  float rope_theta_global = 1e6f;
  float rope_theta_local = 1e4f;
  float rope_scale_global = 1.0f;  // linear scaling factor: positions are divided by it

  float attention_scale = 0.0f;  // multiplies q.k: query_pre_attn_scalar^-0.5
  float embedding_scale = 0.0f;  // sqrt(hidden_dim)
  float rms_norm_eps = 1e-6f;

  int32_t bos_token_id = -1;            // -1: none
  std::vector<int32_t> stop_token_ids;  // end of sequence and end of turn

  std::optional<VisionConfig> vision;  // of the encoder whose soft tokens the decoder takes

  uint32_t q_dim() const { return num_heads * head_dim; }
  uint32_t kv_dim() const { return num_kv_heads * head_dim; }
  uint32_t qkv_dim() const { return q_dim() + 2 * kv_dim(); }
  bool is_global(uint32_t layer_idx) const { return layer_is_global[layer_idx]; }

  // INVALID_ARGUMENT naming the first field that is zero, out of range or inconsistent.
  // Bounds: counts that no real model exceeds (layers 1024, dims 1 << 20, vocab 1 << 22), so
  // that products of two of them never overflow 64 bits.
  absl::Status Validate() const;
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Every sixth layer global, the others sliding.
std::vector<bool> EverySixthGlobal(uint32_t num_layers, uint32_t pattern = 6);

}  // namespace tandem
