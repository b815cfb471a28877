#include "services/common/reference/stages.h"

#include <algorithm>

#include "services/common/base/check.h"
#include "services/common/base/half.h"
#include "services/common/reference/ops.h"

namespace tandem::reference {
namespace {

// rmsnorm of each row of x [num_rows, weight.size()].
std::vector<float> NormRows(std::span<const float> x, const std::vector<float>& weight, float eps) {
  std::vector<float> out(x.size());
  for (size_t i = 0; i < x.size(); i += weight.size()) {
    RmsNorm(x.subspan(i, weight.size()), weight, eps, std::span(out).subspan(i, weight.size()));
  }
  return out;
}

std::vector<float> MultiplyRows(std::span<const float> x, const Matrix& weights, int num_threads) {
  const size_t num_rows = x.size() / weights.cols;
  std::vector<float> out(num_rows * weights.rows);
  MatMul(x, num_rows, weights, out, num_threads);
  return out;
}

// Norms each head and turns it to the rotary's position.
void NormAndRotate(const ModelConfig& config, const std::vector<float>& norm, const Rotary& rotary,
                   std::span<float> heads) {
  for (size_t i = 0; i < heads.size(); i += config.head_dim) {
    const std::span<float> head = heads.subspan(i, config.head_dim);
    RmsNorm(head, norm, config.rms_norm_eps, head);
    rotary.Rotate(head);
  }
}

}  // namespace

void Embed(const Parameters& parameters, std::span<const uint32_t> tokens, Activations& rows) {
  const ModelConfig& config = parameters.config();
  rows.residual.clear();
  for (const uint32_t token : tokens) {
    for (const float value : parameters.embedding().row(token)) {
      rows.residual.push_back(value * config.embedding_scale);
    }
  }
}

void Qkv(const Parameters& parameters, uint32_t layer_idx, std::span<const uint32_t> positions,
         int num_threads, Activations& rows) {
  const ModelConfig& config = parameters.config();
  const LayerParameters& layer = parameters.layer(layer_idx);
  TANDEM_CHECK(rows.residual.size() == positions.size() * config.hidden_dim);
  const std::vector<float> fused = MultiplyRows(
      NormRows(rows.residual, layer.input_norm, config.rms_norm_eps), layer.qkv, num_threads);
  const size_t q_dim = config.q_dim();
  const size_t kv_dim = config.kv_dim();
  rows.q.resize(positions.size() * q_dim);
  rows.k.resize(positions.size() * kv_dim);
  rows.v.resize(positions.size() * kv_dim);
  const bool global = config.is_global(layer_idx);
  Rotary rotary(config.head_dim, global ? config.rope_theta_global : config.rope_theta_local,
                global ? config.rope_scale_global : 1.0f);
  for (size_t r = 0; r < positions.size(); ++r) {
    const float* source = &fused[r * config.qkv_dim()];
    const std::span<float> q = std::span(rows.q).subspan(r * q_dim, q_dim);
    const std::span<float> k = std::span(rows.k).subspan(r * kv_dim, kv_dim);
    std::copy_n(source, q_dim, q.begin());
    std::copy_n(source + q_dim, kv_dim, k.begin());
    std::copy_n(source + q_dim + kv_dim, kv_dim, &rows.v[r * kv_dim]);
    rotary.SetPosition(positions[r]);
    NormAndRotate(config, layer.q_norm, rotary, q);
    NormAndRotate(config, layer.k_norm, rotary, k);
  }
}

void Out(const Parameters& parameters, uint32_t layer_idx, int num_threads, Activations& rows) {
  rows.projection = MultiplyRows(rows.attention, parameters.layer(layer_idx).out, num_threads);
}

void Ffn(const Parameters& parameters, uint32_t layer_idx, int num_threads, Activations& rows) {
  const float eps = parameters.config().rms_norm_eps;
  const LayerParameters& layer = parameters.layer(layer_idx);
  const auto add = [&rows](const std::vector<float>& values) {
    for (size_t i = 0; i < values.size(); ++i) rows.residual[i] += values[i];
  };
  add(NormRows(rows.projection, layer.post_attention_norm, eps));
  const std::vector<float> gate_up =
      MultiplyRows(NormRows(rows.residual, layer.pre_ffn_norm, eps), layer.gate_up, num_threads);
  std::vector<float> hidden(gate_up.size() / 2);
  for (size_t i = 0; i < hidden.size(); ++i) {
    hidden[i] = GeluTanh(gate_up[2 * i]) * gate_up[2 * i + 1];
  }
  add(NormRows(MultiplyRows(hidden, layer.down, num_threads), layer.post_ffn_norm, eps));
}

std::vector<float> Head(const Parameters& parameters, std::span<const float> residual,
                        int num_threads) {
  return MultiplyRows(NormRows(residual, parameters.final_norm(), parameters.config().rms_norm_eps),
                      parameters.head(), num_threads);
}

std::vector<float> Pool(const Parameters& parameters, std::span<const float> residual) {
  const std::vector<float> normed =
      NormRows(residual, parameters.final_norm(), parameters.config().rms_norm_eps);
  const size_t hidden_dim = parameters.config().hidden_dim;
  std::vector<double> sums(hidden_dim);
  for (size_t i = 0; i < normed.size(); ++i) sums[i % hidden_dim] += normed[i];
  return {sums.begin(), sums.end()};
}

uint32_t FirstVisible(const ModelConfig& config, uint32_t layer_idx, uint32_t position) {
  if (config.is_global(layer_idx)) return 0;
  return position + 1 - std::min(position + 1, config.sliding_window);
}

void RoundToHalf(std::span<float> values) {
  for (float& value : values) value = HalfToFloat(FloatToHalf(value));
}

void RoundToPort(DType port_dtype, std::span<float> values) {
  if (port_dtype != DType::kBf16) return RoundToHalf(values);
  for (float& value : values) value = Bf16ToFloat(FloatToBf16(value));
}

}  // namespace tandem::reference
