// What the kernels are told: the push constant blocks of the shaders, field by field and with
// their layout (scalar).  Addresses are device addresses, counts uint32.
#pragma once

#include <cstdint>

namespace tandem::gpu {

struct EmbedPush {  // shaders/memory/embed.comp
  uint64_t step;
  uint64_t plane[4];
  uint64_t destination;
  uint64_t guesses;
  uint32_t first_token;
  uint32_t num_tokens;
  uint32_t cols;
  float scale;
};
static_assert(sizeof(EmbedPush) == 72);

struct CopyRowsPush {  // shaders/memory/copy_rows.comp
  uint64_t count;
  uint64_t source;
  uint64_t destination;
  uint32_t cols;
  uint32_t source_stride;
  uint32_t destination_stride;
  uint32_t first_row;
};
static_assert(sizeof(CopyRowsPush) == 40);

struct AddSlicesPush {  // shaders/memory/add_slices.comp
  uint64_t count;
  uint64_t source;
  uint64_t destination;
  uint32_t cols;
  uint32_t slice_stride;
};
static_assert(sizeof(AddSlicesPush) == 32);

struct PoolPush {  // shaders/memory/pool.comp
  uint64_t step;
  uint64_t source;
  uint64_t destination;
  uint32_t cols;
  uint32_t unused;
};
static_assert(sizeof(PoolPush) == 32);

struct RmsNormPush {  // shaders/norm/rms_norm.comp
  uint64_t step;
  uint64_t source;
  uint64_t weight;
  uint64_t destination;
  uint32_t cols;
  float epsilon;
  uint32_t first_row;
  uint32_t unused;
};
static_assert(sizeof(RmsNormPush) == 48);

struct AddNormPush {  // shaders/norm/add_norm.comp, add_norm_wide.comp
  uint64_t step;
  uint64_t source;
  uint64_t weight;
  uint64_t residual;
  uint64_t next_weight;
  uint64_t normed;
  uint32_t cols;
  float epsilon;
  uint32_t slice_stride;  // add_norm_wide.comp
  uint32_t unused;
  uint64_t updated;
};
static_assert(sizeof(AddNormPush) == 72);

struct MatmulPush {  // shaders/linear/matmul.comp
  uint64_t count;
  uint64_t x;
  uint64_t plane[4];
  uint64_t destination;
  uint32_t k_dim;
  uint32_t n_dim;
  uint32_t out_stride;
  uint32_t out_column;
  uint32_t first_row;
  uint32_t unused;
};
static_assert(sizeof(MatmulPush) == 80);

struct TexelMatmulPush {  // shaders/linear/texel_matmul.comp
  uint64_t count;
  uint64_t destination;
  uint32_t k_dim;
  uint32_t n_dim;
  uint32_t out_stride;
  uint32_t out_column;
  uint32_t first_row;
  uint32_t unused;
};
static_assert(sizeof(TexelMatmulPush) == 40);

struct MatvecPush {  // shaders/linear/matvec.comp
  uint64_t count;
  uint64_t x;
  uint64_t plane[4];
  uint64_t destination;
  uint32_t k_dim;
  uint32_t n_dim;
  uint32_t out_stride;
  uint32_t out_column;
  uint32_t first_row;
  uint32_t slice_stride;
  uint64_t weight;
  uint64_t next_weight;
  uint64_t residual;
  uint64_t updated;
  float epsilon;
  uint32_t unused;
};
static_assert(sizeof(MatvecPush) == 120);

struct MatrixPush {  // shaders/linear/coop_matmul.comp
  uint64_t count;
  uint64_t x;
  uint64_t plane[4];
  uint64_t destination;
  uint64_t workspace;
  uint64_t arrivals;
  uint32_t k_dim;
  uint32_t n_dim;
  uint32_t out_stride;
  uint32_t out_column;
  uint32_t first_row;
  uint32_t splits;
  float x_scale;
  uint32_t whole;
};
static_assert(sizeof(MatrixPush) == 104);

struct QkNormRopePush {  // shaders/attention/qk_norm_rope.comp
  uint64_t step;
  uint64_t qkv;
  uint64_t q;
  uint64_t k;
  uint64_t v;
  uint64_t q_weight;
  uint64_t k_weight;
  uint64_t rotation;
  uint32_t num_heads;
  uint32_t num_kv_heads;
  uint32_t head_dim;
  float epsilon;
  uint32_t block_tokens;
  uint32_t group;
};
static_assert(sizeof(QkNormRopePush) == 88);

struct KvAppendPush {  // shaders/attention/kv_append.comp
  uint64_t step;
  uint64_t k;
  uint64_t v;
  uint64_t k_cache;
  uint64_t v_cache;
  uint32_t num_kv_heads;
  uint32_t head_dim;
  uint32_t block_tokens;
  uint32_t group;
};
static_assert(sizeof(KvAppendPush) == 56);

struct AttentionPush {  // shaders/attention/attention.comp
  uint64_t step;
  uint64_t q;
  uint64_t k_cache;
  uint64_t v_cache;
  uint64_t destination;
  uint32_t num_heads;
  uint32_t num_kv_heads;
  uint32_t block_tokens;
  uint32_t group;
  uint32_t window;
  float scale;
};
static_assert(sizeof(AttentionPush) == 64);

struct DecodePush {  // shaders/attention/decode.comp
  uint64_t step;
  uint64_t rows;
  uint64_t q;
  uint64_t k_cache;
  uint64_t v_cache;
  uint64_t destination;
  uint64_t partials;
  uint64_t counters;
  uint64_t q_weight;
  uint64_t k_weight;
  uint64_t rotation;
  uint32_t num_heads;
  uint32_t num_kv_heads;
  uint32_t group;
  uint32_t window;
  uint32_t slots;
  uint32_t first_row;
  float scale;
  float epsilon;
};
static_assert(sizeof(DecodePush) == 120);

struct TiledPush {  // shaders/attention/tiled.comp
  uint64_t step;
  uint64_t rows;
  uint64_t tiles;
  uint64_t q;
  uint64_t k_cache;
  uint64_t v_cache;
  uint64_t destination;
  uint32_t num_heads;
  uint32_t num_kv_heads;
  uint32_t group;
  uint32_t window;
  float scale;
  uint32_t unused;
};
static_assert(sizeof(TiledPush) == 80);

struct HeadSlicePush {  // shaders/head/head_slice.comp
  uint64_t step;
  uint64_t logits;
  uint64_t slices;
  uint32_t vocab_size;
  uint32_t logit_stride;
  uint32_t slice_len;
  uint32_t first_output;
};
static_assert(sizeof(HeadSlicePush) == 40);

struct HeadMergePush {  // shaders/head/head_merge.comp
  uint64_t step;
  uint64_t logits;
  uint64_t slices;
  uint64_t results;
  uint64_t sums;
  uint64_t guesses;
  uint64_t guessed;
  uint32_t vocab_size;
  uint32_t logit_stride;
  uint32_t num_slices;
  uint32_t first_output;
};
static_assert(sizeof(HeadMergePush) == 72);

}  // namespace tandem::gpu
