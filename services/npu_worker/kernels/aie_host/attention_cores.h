// The attention's core functions (../aie/attention.cc), compiled for the host.
#pragma once

#include <cstdint>

#include <aie_api/aie.hpp>

#include "services/npu_worker/kernels/aie/attention_tile.h"

namespace tandem::npu {

struct AttentionCore {
  void (*begin)(AttentionState* state, float* sums);
  void (*keys)(const AttentionParameters* parameters, int32 first_key, const bfloat16* queries,
               const bfloat16* keys, float* scores, bfloat16* probabilities, AttentionState* state);
  void (*values)(const AttentionParameters* parameters, int32 first_key,
                 const bfloat16* probabilities, bfloat16* values, const AttentionState* state,
                 float* sums);
  void (*end)(const AttentionState* state, const float* sums, bfloat16* output);
};

// For heads of 64, 128 or 256; nullptr: another size.
const AttentionCore* AttentionCoreAie2(uint32_t head_dim);
const AttentionCore* AttentionCoreAie2p(uint32_t head_dim);  // by block floating point

}  // namespace tandem::npu
