// Launches of matmuls with few rows: shaders/linear/matvec.comp and coop_matvec.comp.
#pragma once

#include <cstdint>
#include <optional>

#include "services/gpu_worker/kernels/activation_format.h"
#include "services/gpu_worker/kernels/launches.h"

namespace tandem::gpu {

// How a matmul is divided.  The bits of an output row depend on `teams` and `split_k`.  These
// depend on the weights' shape and on whether there are more than two rows, not on the number of
// rows.
struct MatvecShape {
  bool narrow = false;   // coop_matvec.comp: on matrices of eight columns
  uint32_t teams = 1;    // of 32 threads in a workgroup, which share a part of k
  uint32_t split_k = 1;  // parts of k, each with partial sums of its own
  uint32_t tiles = 1;    // of 32 rows of weights to a workgroup, 2 or 4 with GeGLU; 1 if narrow
  uint32_t rows = 1;     // of activations to a pass, a power of two; 8 or more if narrow
  uint32_t parts = 1;    // in which a unit's weights are loaded: 1, 2 or 4; 1 if narrow
};

inline constexpr uint32_t kMaxSplitK = 8;

// The formats the kernel reads: all but f32.
bool HasMatvec(DType dtype);
// Whether matmuls of up to `max_rows` rows run on coop_matvec.comp here.
bool UsesNarrowMatrices(const Tuning& tuning, DType dtype, uint32_t max_rows);
// The input format that matvec.comp reads best.  With quantised weights it also takes attention's
// f16 or bf16, and f32, and quantises them itself.
ActivationFormat MatvecInput(DType dtype);

// `can_split` false: split_k is 1, because no consumer adds partial sums.
MatvecShape ChooseMatvecShape(const Tuning& tuning, const DeviceTensor& weights, bool geglu,
                              bool can_split, uint32_t max_rows);

// A matmul of one row that computes its input from the partial sums of the matmul before: adds
// them, adds the residual, norms.  shaders/linear/norm_input.glsl.
struct InputNorm {
  uint32_t split_k = 1;      // partial sums; x is float32 [split_k, cols]
  uint64_t weight = 0;       // float32 [cols], of x's norm
  uint64_t next_weight = 0;  // float32 [cols], of the input's norm
  uint64_t residual = 0;     // float32 [cols]
  uint64_t updated = 0;      // float32 [cols], the new residual; 0: not stored
  float epsilon = 0.0f;
};

struct MatvecArgs {
  uint64_t count = 0;  // address of the number of rows
  uint64_t x = 0;
  ActivationFormat x_format = ActivationFormat::kInt8;
  float x_scale = 1.0f;  // narrow: of the input
  // float32 [split_k][rows, out_stride], `split_stride` elements apart.  With GeGLU: activations
  // [rows, out_stride] of `out_format`.
  uint64_t destination = 0;
  uint32_t out_stride = 0;
  uint32_t split_stride = 0;
  bool geglu = false;  // rows 2i and 2i + 1 of the weights make column i
  ActivationFormat out_format = ActivationFormat::kF32;
  uint32_t first_row = 0;
  uint32_t max_rows = 0;
  std::optional<InputNorm> norm;  // x_format is int8 then
};

// Whether matmuls of that shape can take an InputNorm.
bool CanNormInput(const Tuning& tuning, const DeviceTensor& weights, const MatvecShape& shape);

// REQUIRES HasMatvec.  Narrow: fragments, f16 or bf16 activations; with GeGLU not to int8.  With a norm:
// CanNormInput and one row.  16-bit weights: f16, bf16 or f32 activations.  With GeGLU: shards of whole tiles, and of whole pairs of tiles for int8.
Launch MatvecLaunch(const Tuning& tuning, const DeviceTensor& weights, const DeviceShard& shard,
                    const MatvecShape& shape, const MatvecArgs& args);

}  // namespace tandem::gpu
