// Launches of the vision encoder's own kernels (shaders/vision/): everything but its matmuls and its
// attention.  services/common/reference/vision_encoder.h has the equations.  Pure functions, as in
// launches.h.
//
// All pictures of a model have the same shape, so the number of rows is fixed when a launch is
// recorded.
#pragma once

#include <cstdint>

#include "services/gpu_worker/kernels/activation_format.h"
#include "services/gpu_worker/kernels/launch.h"
#include "services/gpu_worker/kernels/tuning.h"

namespace tandem::gpu {

// REQUIRES in all: addresses are multiples of 16 bytes, `format` is kF32 or kF16.  Memory without a
// type below is float32, or of `format`.

// A picture's patches in reading order, one a row: column (c * patch_size + y) * patch_size + x.
struct CutPatchesArgs {
  uint64_t pixels = 0;       // float32 [3, image_size, image_size]
  uint64_t destination = 0;  // [(image_size / patch_size)^2, stride]
  uint32_t image_size = 0;   // a multiple of patch_size
  uint32_t patch_size = 0;
  uint32_t stride = 0;  // a multiple of 4, 3 * patch_size^2 or more; columns from there on are zero
  ActivationFormat format = ActivationFormat::kF32;
};
Launch CutPatchesLaunch(const Tuning& tuning, const CutPatchesArgs& args);

//   updated = residual + source + bias
//   normed = (updated - mean(updated)) / sqrt(var(updated) + epsilon) * weight + norm_bias
struct AddLayerNormArgs {
  uint64_t source = 0;     // [rows, cols]; 0: none, then bias and updated are ignored
  uint64_t bias = 0;       // [cols]
  uint64_t residual = 0;   // float32 [rows, cols]
  uint64_t updated = 0;    // float32 [rows, cols], may be `residual`
  uint64_t weight = 0;     // [cols]
  uint64_t norm_bias = 0;  // [cols]
  uint64_t normed = 0;     // [rows, cols]
  uint32_t cols = 0;       // a multiple of 4
  uint32_t rows = 0;
  float epsilon = 0;
  ActivationFormat format = ActivationFormat::kF32;  // of normed
};
Launch AddLayerNormLaunch(const Tuning& tuning, const AddLayerNormArgs& args);

// From the fused projection to q, k and v, biases added, in float16 as attention reads them.  k and
// v: a cache of kKvF16 whose block table is 0, 1, 2, ...  Vectors of its last block from `rows` on
// are not written.
struct SplitHeadsArgs {
  uint64_t sums = 0;    // [rows, 3, num_heads * head_dim]: q, k, v
  uint64_t q_bias = 0;  // [num_heads * head_dim]
  uint64_t k_bias = 0;
  uint64_t v_bias = 0;
  uint64_t q = 0;        // float16 [rows, num_heads, head_dim]
  uint64_t k_cache = 0;  // float16 [ceil(rows / block_tokens), num_heads, block_tokens, head_dim]
  uint64_t v_cache = 0;
  uint32_t num_heads = 0;
  uint32_t head_dim = 0;  // a multiple of 8
  uint32_t block_tokens = 0;
  uint32_t rows = 0;
};
Launch SplitHeadsLaunch(const Tuning& tuning, const SplitHeadsArgs& args);

// gelu_tanh(source + bias), in kF16 divided by kGegluHalfScale.
struct BiasGeluArgs {
  uint64_t source = 0;       // [rows, cols]
  uint64_t bias = 0;         // [cols]
  uint64_t destination = 0;  // [rows, stride]
  uint32_t cols = 0;         // a multiple of 4
  uint32_t stride = 0;       // a multiple of 4, `cols` or more; columns from there on are zero
  uint32_t rows = 0;
  ActivationFormat format = ActivationFormat::kF32;
};
Launch BiasGeluLaunch(const Tuning& tuning, const BiasGeluArgs& args);

//   destination = rmsnorm(mean of the pool x pool rows of its square) * weight
struct PoolPatchesArgs {
  uint64_t source = 0;       // float32 [side * side, cols], in reading order
  uint64_t weight = 0;       // [cols], 1 + w
  uint64_t destination = 0;  // [(side / pool)^2, cols]
  uint32_t side = 0;         // a multiple of pool
  uint32_t pool = 0;
  uint32_t cols = 0;  // a multiple of 4
  float epsilon = 0;
  ActivationFormat format = ActivationFormat::kF32;
};
Launch PoolPatchesLaunch(const Tuning& tuning, const PoolPatchesArgs& args);

}  // namespace tandem::gpu
