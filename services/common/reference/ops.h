// The operations of a Gemma 3 decoder other than matmuls, in plain float32.
//
// Written to be read: each function has its equation above it.  Shapes are in brackets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/common/model/model_config.h"
#include "services/common/step/step_batch.h"

namespace tandem::reference {

//   out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]
//
// All [n].  `weight` already holds 1 + w.  `out` may be `x`.
void RmsNorm(std::span<const float> x, std::span<const float> weight, float eps,
             std::span<float> out);

//   gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
float GeluTanh(float x);

// Rotary embedding, each element paired with the one half a head away:
//
//   angle_i = position * theta^(-2i/d) / scale                  i < d/2
//   x[i]       = x[i] cos(angle_i) - x[i + d/2] sin(angle_i)
//   x[i + d/2] = x[i + d/2] cos(angle_i) + x[i] sin(angle_i)
//
// Angles in float32, as in the models' own implementation.
// Source: Su et al., RoFormer, section 3.4.2; linear scaling: Chen et al., Position Interpolation.
class Rotary {
 public:
  // `head_dim`: d above, even.
  Rotary(size_t head_dim, float theta, float scale);

  // Sets the position of the heads that follow.
  void SetPosition(uint32_t position);
  // Turns `head` [head_dim] in place.
  void Rotate(std::span<float> head) const;

 private:
  std::vector<float> frequencies_;  // [d/2], divided by scale
  std::vector<float> cos_, sin_;    // [d/2], of the position's angles
};

// Attention of one row over the positions it sees, heads grouped over KV heads:
//
//   out_h = sum_p softmax_p(attention_scale * q_h . k_p,h') v_p,h'      h' = h / (heads/kv_heads)
//
// q and out [num_heads, head_dim]; keys[p] and values[p] each [num_kv_heads, head_dim].
// REQUIRES at least one position.
void AttendRow(const ModelConfig& config, std::span<const float> q,
               std::span<const float* const> keys, std::span<const float* const> values,
               std::span<float> out);

//   log sum_i exp(x[i]), computed about the maximum, in float64
float LogSumExp(std::span<const float> logits);

// What the head reports for a row: log-sum-exp, the `num_candidates` largest logits in descending
// order (ties: the lower token first), the target's logit.  Logits that are no finite numbers are
// counted, and are no candidates.  `mask`: empty, or [MaskWords(logits.size())], see step_batch.h.
OutputResult SummariseLogits(std::span<const float> logits, uint32_t num_candidates,
                             uint32_t target, std::span<const uint32_t> mask = {});

// The token guessed from a row's candidates (step_batch.h), in float64; `draw` null: the best one.
// 0 when there is no candidate.
uint32_t GuessToken(const OutputResult& result, const DrawEntry* draw);

}  // namespace tandem::reference
