// Push constants of the kernels.  The fields and what they mean are in shaders/include/push/, one
// file a block, which the shader includes too.  Addresses are device addresses, counts uint32.
#pragma once

#include <cstdint>

// clang-format off
#define PUSH_BLOCK(name) struct name {
#define PUSH_PHASE
#define PUSH_END };
// clang-format on

namespace tandem::gpu {

using uint = uint32_t;  // GLSL's

#include "shaders/include/push/add_layer_norm.glsl"
#include "shaders/include/push/add_norm.glsl"
#include "shaders/include/push/add_split_k.glsl"
#include "shaders/include/push/attention.glsl"
#include "shaders/include/push/bias_gelu.glsl"
#include "shaders/include/push/chains.glsl"
#include "shaders/include/push/compute_rate.glsl"
#include "shaders/include/push/coop_matmul.glsl"
#include "shaders/include/push/copy_pages.glsl"
#include "shaders/include/push/copy_rows.glsl"
#include "shaders/include/push/cut_patches.glsl"
#include "shaders/include/push/decode.glsl"
#include "shaders/include/push/embed.glsl"
#include "shaders/include/push/head_merge.glsl"
#include "shaders/include/push/head_slice.glsl"
#include "shaders/include/push/kv_append.glsl"
#include "shaders/include/push/matmul.glsl"
#include "shaders/include/push/matvec.glsl"
#include "shaders/include/push/pool.glsl"
#include "shaders/include/push/pool_patches.glsl"
#include "shaders/include/push/probe.glsl"
#include "shaders/include/push/qk_norm_rope.glsl"
#include "shaders/include/push/read_rate.glsl"
#include "shaders/include/push/rms_norm.glsl"
#include "shaders/include/push/split_heads.glsl"
#include "shaders/include/push/texel_matmul.glsl"
#include "shaders/include/push/tiled.glsl"

}  // namespace tandem::gpu

#undef PUSH_BLOCK
#undef PUSH_PHASE
#undef PUSH_END
