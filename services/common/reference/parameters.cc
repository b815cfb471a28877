#include "services/common/reference/parameters.h"

#include "services/common/base/check.h"
#include "services/common/weights/dequantize.h"

namespace tandem::reference {

std::vector<Stage> AllStages(uint32_t num_layers) {
  std::vector<Stage> stages;
  for (uint32_t i = 0; i < NumStages(num_layers); ++i) stages.push_back(StageAt(i, num_layers));
  return stages;
}

Parameters::Parameters(const WeightSet& weights)
    : Parameters(weights, AllStages(weights.config().num_layers)) {}

Parameters::Parameters(const WeightSet& weights, const std::vector<Stage>& stages)
    : config_(weights.config()), layers_(weights.config().num_layers) {
  for (const Stage stage : stages) {
    for (const WeightRole role : RolesOfStage(stage.kind)) {
      LoadRole(weights, role, IsPerLayer(role) ? stage.layer_idx : 0);
    }
  }
}

void Parameters::LoadRole(const WeightSet& weights, WeightRole role, uint32_t layer_idx) {
  const PackedTensor* tensor = weights.Find(role, layer_idx);
  if (tensor == nullptr) return;  // kHead, tied
  const auto vector = [&] { return DequantizeTensor(weights, *tensor); };
  const auto matrix = [&] { return Matrix{tensor->shape.rows, tensor->shape.cols, vector()}; };
  LayerParameters& layer = layers_[layer_idx];
  switch (role) {
    case WeightRole::kEmbedding:
      if (embedding_.values.empty()) embedding_ = matrix();
      return;
    case WeightRole::kHead:
      head_ = matrix();
      return;
    case WeightRole::kFinalNorm:
      final_norm_ = vector();
      return;
    case WeightRole::kInputNorm:
      layer.input_norm = vector();
      return;
    case WeightRole::kQkv:
      layer.qkv = matrix();
      return;
    case WeightRole::kQNorm:
      layer.q_norm = vector();
      return;
    case WeightRole::kKNorm:
      layer.k_norm = vector();
      return;
    case WeightRole::kOut:
      layer.out = matrix();
      return;
    case WeightRole::kPostAttentionNorm:
      layer.post_attention_norm = vector();
      return;
    case WeightRole::kPreFfnNorm:
      layer.pre_ffn_norm = vector();
      return;
    case WeightRole::kGateUp:
      layer.gate_up = matrix();
      return;
    case WeightRole::kDown:
      layer.down = matrix();
      return;
    case WeightRole::kPostFfnNorm:
      layer.post_ffn_norm = vector();
      return;
  }
}

}  // namespace tandem::reference
