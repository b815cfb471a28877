#include "services/gpu_worker/stages/layer_fusion.h"

namespace tandem::gpu {

std::vector<LayerFusion> ChooseFusions(const Tuning& tuning, std::span<const LayerWeights> layers,
                                       uint32_t hidden_dim, const AttentionFormats& attention,
                                       uint32_t rows) {
  const bool adds_split_k = AddsSplitK(tuning, hidden_dim);
  std::vector<LayerFusion> fusions(layers.size());
  for (size_t l = 0; l < layers.size(); ++l) {
    const LayerWeights& weights = layers[l];
    LayerFusion& fusion = fusions[l];
    if (!weights.qkv.empty()) fusion.qkv = ChooseMatmuls(tuning, weights.qkv, rows);
    fusion.out.input = ActivationFormat::kF16;  // what another worker's Out reads
    if (weights.out != nullptr) {
      fusion.out = ChooseMatmul(tuning, *weights.out, false, adds_split_k, rows);
      const bool own = fusion.out.input == ActivationFormat::kInt8 ||
                       fusion.out.input == ActivationFormat::kFragments;
      if (!weights.attends) {
        TakeAttention(fusion.out, attention.from_elsewhere);
      } else if (!own || !attention.writes_own) {
        TakeAttention(fusion.out, ActivationFormat::kF16);
      }
    }
    if (weights.gate_up == nullptr) continue;
    fusion.out_split_k = weights.out != nullptr ? fusion.out.split_k() : 1;
    fusion.gate_up = ChooseMatmul(tuning, *weights.gate_up, true, false, rows);
    fusion.down = ChooseMatmul(tuning, *weights.down, false, adds_split_k, rows);
    MatchGeglu(fusion.gate_up, *weights.gate_up, fusion.down);
    fusion.gate_up_has_norm = TakesInputNorm(tuning, fusion.gate_up, *weights.gate_up, rows);
  }
  for (size_t l = 1; l < layers.size(); ++l) {
    if (layers[l].qkv.empty() || layers[l - 1].gate_up == nullptr) continue;
    bool in_qkv = fusions[l - 1].gate_up_has_norm;
    for (size_t i = 0; i < layers[l].qkv.size(); ++i) {
      in_qkv = in_qkv && TakesInputNorm(tuning, fusions[l].qkv[i], layers[l].qkv[i], rows);
    }
    fusions[l].qkv_norm = in_qkv ? QkvNorm::kInQkv : QkvNorm::kWithAdd;
  }
  return fusions;
}

}  // namespace tandem::gpu
