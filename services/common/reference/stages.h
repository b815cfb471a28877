// The stages of plan/stage.h in plain float32, one function each.
//
// Activations are [num_rows, ...], rows in any order: only AttendRow (ops.h) relates one row to
// another.  A result's bits depend on its own row alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/common/reference/parameters.h"

namespace tandem::reference {

// What the rows of a step carry from stage to stage.  Shapes per row as in plan/stage.h's Port.
struct Activations {
  std::vector<float> residual;    // [num_rows, hidden_dim]
  std::vector<float> q;           // [num_rows, num_heads, head_dim]
  std::vector<float> k;           // [num_rows, num_kv_heads, head_dim]
  std::vector<float> v;           // [num_rows, num_kv_heads, head_dim]
  std::vector<float> attention;   // [num_rows, num_heads, head_dim]
  std::vector<float> projection;  // [num_rows, hidden_dim]
};

//   residual = embedding[token] * embedding_scale
void Embed(const Parameters& parameters, std::span<const uint32_t> tokens, Activations& rows);

//   q, k, v = split(Wqkv rmsnorm(residual));  q = rotate(rmsnorm(q)), k = rotate(rmsnorm(k))
void Qkv(const Parameters& parameters, uint32_t layer_idx, std::span<const uint32_t> positions,
         int num_threads, Activations& rows);

//   projection = Wo attention
void Out(const Parameters& parameters, uint32_t layer_idx, int num_threads, Activations& rows);

//   residual += rmsnorm(projection)
//   residual += rmsnorm(Wdown (gelu_tanh(gate) * up)),  gate, up = Wgu rmsnorm(residual)
void Ffn(const Parameters& parameters, uint32_t layer_idx, int num_threads, Activations& rows);

//   logits = Whead rmsnorm(residual)
//
// residual [num_rows, hidden_dim]; returns [num_rows, vocab_size].
std::vector<float> Head(const Parameters& parameters, std::span<const float> residual,
                        int num_threads);

//   sum over the rows of rmsnorm(residual)
//
// residual [num_rows, hidden_dim]; returns [hidden_dim], added up in float64.
std::vector<float> Pool(const Parameters& parameters, std::span<const float> residual);

// First position that a row at `position` sees in a layer.
uint32_t FirstVisible(const ModelConfig& config, uint32_t layer_idx, uint32_t position);

// Rounds every value to float16 and back, as the KV cache does.
void RoundToHalf(std::span<float> values);
// The same in the format of a plan's ports, float16 or bfloat16.
void RoundToPort(DType port_dtype, std::span<float> values);

}  // namespace tandem::reference
