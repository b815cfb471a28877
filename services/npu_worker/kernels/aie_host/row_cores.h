// The core functions for rows (../aie/norm.cc, rope.cc, geglu.cc), compiled for the host.  They multiply no
// matrices, so those of AIE2 and of AIE2P are the same.
#pragma once

#include <aie_api/aie.hpp>

namespace tandem::npu {

struct RowCore {
  float (*norm_factor)(const float* row, unsigned size, float inverse_count, float epsilon);
  void (*norm_part)(const float* row, const float* weights, unsigned size, float factor,
                    bfloat16* output);
  void (*norm_add_part)(const float* row, const float* weights, unsigned size, float factor,
                        float* residual);
  void (*rope)(const float* head, const float* weights, const float* cosines, const float* sines,
               unsigned head_dim, float epsilon, bfloat16* output);
  void (*geglu)(const float* gate_up, unsigned ffn_dim, bfloat16* output);
};

extern const RowCore kRowCore;

}  // namespace tandem::npu
