// Launches of products with few rows: shaders/linear/matvec.comp and coop_matvec.comp.
#pragma once

#include <cstdint>
#include <optional>

#include "services/gpu_worker/kernels/activation_format.h"
#include "services/gpu_worker/kernels/launches.h"

namespace tandem::gpu {

// How a product is divided.  A row's bits depend on teams and slices, which depend on the weights'
// shape and on whether there are more than two rows, not on their number otherwise.
struct MatvecShape {
  bool bytes = false;   // coop_matvec.comp: on int8 matrix units
  uint32_t teams = 1;   // of 32 threads in a workgroup, sharing a slice of k
  uint32_t slices = 1;  // of k, each with sums of its own
  uint32_t tiles = 1;   // of 32 rows of weights to a workgroup, 2 or 4 with GeGLU
  uint32_t rows = 1;    // of activations to a pass, a power of two
  uint32_t parts = 1;   // in which a unit's weights are loaded: 1, 2 or 4
  uint32_t batch = 1;   // bytes: blocks that go through shared memory at once, 8 / parts at most
  bool unit_scales = false;  // bytes: weights' scales do once a unit; batch is even then
};

// The most slices a shape has.
inline constexpr uint32_t kMaxSlices = 8;

// The formats the kernel reads: all but f32.
bool HasMatvec(DType dtype);
// Those that coop_matvec.comp reads: blocks of 32 with one scale.
bool HasByteMatvec(DType dtype);
// Whether products of up to `max_rows` rows run on coop_matvec.comp here.
bool UsesByteMatrices(const Tuning& tuning, const DeviceTensor& weights, uint32_t max_rows);
// What it reads best; attention's f16 and f32 it quantises itself where weights are quantised.
ActivationFormat MatvecInput(DType dtype);

// `can_split` false: one slice, because sums of slices have nobody to add them.
MatvecShape ChooseMatvecShape(const Tuning& tuning, const DeviceTensor& weights, bool geglu,
                              bool can_split, uint32_t max_rows);

// What makes a product's one row of input of the sums that the product before has left:
// shaders/linear/norm_input.glsl.
struct InputNorm {
  uint32_t slices = 1;       // of x, which is float32 [slices, cols]
  uint64_t weight = 0;       // float32 [cols], of x's norm
  uint64_t next_weight = 0;  // float32 [cols], of the input's
  uint64_t residual = 0;     // float32 [cols]
  uint64_t updated = 0;      // float32 [cols], where the new residual goes; 0: nowhere
  float epsilon = 0.0f;
};

struct MatvecArgs {
  uint64_t count = 0;  // address of the number of rows
  uint64_t x = 0;
  ActivationFormat x_format = ActivationFormat::kInt8;
  // float32 [slices][rows, out_stride], `slice_stride` elements between slices; with GeGLU
  // activations [rows, out_stride] of `out_format`.
  uint64_t destination = 0;
  uint32_t out_stride = 0;
  uint32_t slice_stride = 0;
  bool geglu = false;  // rows 2i and 2i + 1 of the weights make column i
  ActivationFormat out_format = ActivationFormat::kF32;
  uint32_t first_row = 0;
  uint32_t max_rows = 0;
  std::optional<InputNorm> norm;  // x_format is int8 then
};

// Whether products of that shape can take an InputNorm.
bool CanNormInput(const Tuning& tuning, const DeviceTensor& weights, const MatvecShape& shape);

// REQUIRES HasMatvec; CanNormInput and one row with a norm; f16 or f32 activations for 16-bit
// weights; with GeGLU shards of whole tiles, of whole pairs of tiles for int8.
Launch MatvecLaunch(const Tuning& tuning, const DeviceTensor& weights, const DeviceShard& shard,
                    const MatvecShape& shape, const MatvecArgs& args);

}  // namespace tandem::gpu
