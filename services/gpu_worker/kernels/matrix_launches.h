// Matmuls of many rows on cooperative matrices: shaders/linear/coop_matmul.comp.
#pragma once

#include <cstdint>

#include "services/gpu_worker/kernels/activation_format.h"
#include "services/gpu_worker/kernels/launch.h"
#include "services/gpu_worker/kernels/launches.h"
#include "services/gpu_worker/kernels/tile_splits.h"
#include "services/gpu_worker/kernels/tuning.h"

namespace tandem::gpu {

enum class MatrixOutput : uint32_t {
  kF32 = 0,       // sums
  kGegluF32 = 1,  // rows 2i and 2i + 1 of the weights make column i
  kGegluF16 = 2,  // the same divided by kGegluHalfScale
  // Of the vision encoder: float16 of a sum and its column's bias.
  kBiasGeluF16 = 3,  // gelu_tanh of it, divided by kGegluHalfScale
  kHeadsF16 = 4,     // [row / block_tokens, heads, block_tokens, head_dim]
};

// Scratch memory of workgroups that share a tile by split-K.
struct MatrixWorkspace {
  uint64_t sums = 0;  // address, a multiple of 16; 0: none, k is not split
  uint64_t sums_bytes = 0;
  uint64_t arrivals = 0;  // address of kMatrixMaxTiles uint32, zero
};
// Enough for split-K at 2,048 rows.
inline constexpr uint64_t kMatrixSumsBytes = 52 << 20;

struct MatrixArgs {
  uint64_t count = 0;                                  // address of the number of rows
  uint64_t x = 0;                                      // [rows, weights.cols]
  ActivationFormat x_format = ActivationFormat::kF16;  // or kBf16
  float x_scale = 1.0f;
  MatrixOutput output = MatrixOutput::kF32;
  uint64_t destination = 0;
  uint32_t out_stride = 0;
  uint32_t first_row = 0;
  uint32_t max_rows = 0;
  MatrixWorkspace workspace;  // no other launch uses it at the same time
  // Of kBiasGeluF16 and kHeadsF16, which have a multiple of 4 outputs.
  uint64_t bias = 0;  // float32 [out_stride], a multiple of 16
  // Of kHeadsF16, whose out_stride is that of all heads.
  uint32_t head_dim = 8;  // a multiple of 8
  uint32_t block_tokens = 1;
};

// Whether matmuls of up to `max_rows` rows with weights of `dtype` run on matrix units here.
bool UsesMatrixUnits(const Tuning& tuning, DType dtype, uint32_t max_rows);

// REQUIRES UsesMatrixUnits; weights of a multiple of 32 columns.
Launch MatrixMatmulLaunch(const Tuning& tuning, const DeviceTensor& weights,
                          const DeviceShard& shard, const MatrixArgs& args);

}  // namespace tandem::gpu
