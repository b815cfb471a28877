// Gemma 3's vision encoder in plain float32: pixels in, soft tokens out.
//
// Written to be read, as ops.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/common/reference/matmul.h"
#include "services/common/weights/vision_weights.h"

namespace tandem::reference {

//   out[i] = (x[i] - mean(x)) / sqrt(var(x) + eps) * weight[i] + bias[i]
//
// All [n]; the variance divides by n.  `out` may be `x`.
void LayerNorm(std::span<const float> x, std::span<const float> weight, std::span<const float> bias,
               float eps, std::span<float> out);

// Attention of every row over every row, none masked:
//
//   out_h = sum_p softmax_p(head_dim^-1/2 * q_h . k_p,h) v_p,h
//
// q, k, v and out [num_rows, num_heads, head_dim].
void AttendAll(std::span<const float> q, std::span<const float> k, std::span<const float> v,
               size_t num_rows, uint32_t num_heads, int num_threads, std::span<float> out);

// Averages squares of `pool` x `pool` rows.  x [side * side, dim], row-major over a square of
// `side`; returns [(side / pool)^2, dim].  REQUIRES pool divides side.
std::vector<float> AveragePool(std::span<const float> x, uint32_t side, uint32_t pool, size_t dim);

// Immutable after construction, so thread-safe.
class VisionEncoder {
 public:
  // REQUIRES weights.config is valid and every tensor is there.
  explicit VisionEncoder(const VisionWeights& weights, int num_threads = 1);

  const VisionConfig& config() const { return config_; }

  // SigLIP without its pooling head: patches, then layers, then the last norm.
  //
  //   x = Wpatch patch + bpatch + positions
  //   x += Wout attention(Wqkv norm1(x) + bqkv) + bout
  //   x += Wdown gelu_tanh(Wup norm2(x) + bup) + bdown
  //   out = post_norm(x)
  //
  // pixels [3, image_size, image_size] (picture/prepare.h); returns [num_patches, hidden_dim].
  std::vector<float> Tower(std::span<const float> pixels) const;

  //   soft token = rmsnorm(mean of the patches of its square) Wprojection
  //
  // tower [num_patches, hidden_dim]; returns [tokens_per_image, text_hidden_dim].
  std::vector<float> Project(std::span<const float> tower) const;

  std::vector<float> Encode(std::span<const float> pixels) const { return Project(Tower(pixels)); }

 private:
  struct Linear {
    Matrix weight;
    std::vector<float> bias;
  };
  struct Norm {
    std::vector<float> weight, bias;
  };
  struct Layer {
    Norm norm1, norm2;
    Linear q, k, v, out, up, down;
  };

  // One row a patch, in reading order: [num_patches, 3 * patch_size^2].
  std::vector<float> CutPatches(std::span<const float> pixels) const;
  std::vector<float> Apply(const Linear& linear, std::span<const float> x) const;
  std::vector<float> Apply(const Norm& norm, std::span<const float> x) const;
  void AddAttention(const Layer& layer, std::vector<float>& x) const;
  void AddFfn(const Layer& layer, std::vector<float>& x) const;

  VisionConfig config_;
  int num_threads_;
  Linear patches_;
  std::vector<float> positions_;  // [num_patches, hidden_dim]
  std::vector<Layer> layers_;
  Norm post_norm_;
  std::vector<float> projection_norm_;  // [hidden_dim], 1 + w
  Matrix projection_;                   // [text_hidden_dim, hidden_dim]: transposed once
};

}  // namespace tandem::reference
