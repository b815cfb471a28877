// A model's weights as float32, dequantised once.
#pragma once

#include <vector>

#include "services/common/plan/stage.h"
#include "services/common/reference/matmul.h"
#include "services/common/weights/weight_set.h"

namespace tandem::reference {

struct LayerParameters {
  std::vector<float> input_norm;           // [hidden_dim]
  Matrix qkv;                              // [q_dim + 2 kv_dim, hidden_dim]
  std::vector<float> q_norm, k_norm;       // [head_dim]
  Matrix out;                              // [hidden_dim, q_dim]
  std::vector<float> post_attention_norm;  // [hidden_dim]
  std::vector<float> pre_ffn_norm;         // [hidden_dim]
  Matrix gate_up;                          // [2 ffn_dim, hidden_dim], gate and up rows in turn
  Matrix down;                             // [hidden_dim, ffn_dim]
  std::vector<float> post_ffn_norm;        // [hidden_dim]
};

// Immutable after construction, so thread-safe.
class Parameters {
 public:
  // Dequantises what `stages` need, and leaves the rest empty.
  Parameters(const WeightSet& weights, const std::vector<Stage>& stages);
  // All of it.
  explicit Parameters(const WeightSet& weights);

  const ModelConfig& config() const { return config_; }
  const Matrix& embedding() const { return embedding_; }  // [vocab_size, hidden_dim]
  const Matrix& head() const { return head_.values.empty() ? embedding_ : head_; }
  const std::vector<float>& final_norm() const { return final_norm_; }
  const LayerParameters& layer(uint32_t layer_idx) const { return layers_[layer_idx]; }

 private:
  void LoadRole(const WeightSet& weights, WeightRole role, uint32_t layer_idx);

  ModelConfig config_;
  Matrix embedding_;
  Matrix head_;
  std::vector<float> final_norm_;
  std::vector<LayerParameters> layers_;
};

// Every stage of a model, in order.
std::vector<Stage> AllStages(uint32_t num_layers);

}  // namespace tandem::reference
