// Launches from the fused projection to attention's output; see launches.h.
//
// REQUIRES in all: norms f32, head_dim a multiple of 8 up to 256.
#pragma once

#include <cstdint>
#include <vector>

#include "services/common/tensor/dtype.h"
#include "services/gpu_worker/kernels/activation_format.h"
#include "services/gpu_worker/kernels/attention_step.h"
#include "services/gpu_worker/kernels/launch.h"
#include "services/gpu_worker/kernels/push_constants.h"
#include "services/gpu_worker/kernels/tuning.h"

namespace tandem::gpu {

// Formats of the KV cache as the kernels number them: shaders/include/kv_cache.glsl.
enum class KvFormat : uint32_t { kF16 = 0, kQ8_0 = 1 };

// `kv_dtype` everywhere: of the layer's cache, valid for head_dim (common/tensor/kv_format.h).
// `port_dtype`: of q, k and v, kF16 or kBf16.
Launch QkNormRopeLaunch(const Tuning& tuning, const QkNormRopePush& push, uint32_t max_rows,
                        DType port_dtype = DType::kF16);
// push.k and push.v are the layer's cache.
Launch QkNormRopeAppendLaunch(const Tuning& tuning, const QkNormRopePush& push, DType kv_dtype,
                              uint32_t max_rows);
Launch KvAppendLaunch(const Tuning& tuning, const KvAppendPush& push, DType kv_dtype,
                      uint32_t max_rows);
// `cache_bytes`: of the layer's K, and of its V.
// `picture_rows`: of a picture, 0 if steps have none.
Launch AttentionLaunch(const Tuning& tuning, const AttentionPush& push, uint32_t head_dim,
                       DType kv_dtype, uint64_t cache_bytes, uint32_t max_rows,
                       uint32_t picture_rows = 0);

// How decode.comp divides its work for a model's heads.
struct DecodeShape {
  uint32_t queries = 1;     // query heads of a workgroup, of one KV head
  uint32_t parts = 1;       // workgroups that a row's heads take
  uint32_t group = 1;       // lanes that share a position
  uint32_t at_once = 1;     // positions that a lane loads ahead
  uint32_t piece = 1;       // shortest piece, positions
  uint32_t max_pieces = 1;  // of a row, and one more where the first is partial
  uint32_t num_groups = 1;  // workgroups that fill the device
  // Of a row, for the kernel's partial results.
  uint64_t PartialBytes(uint32_t head_dim) const {
    return uint64_t{parts} * (max_pieces + 1) * queries * (head_dim + 4) * 4;
  }
  // Most workgroups that share a row's part in a launch for `max_rows` rows: enough to fill the
  // device, but no more than a row has pieces.  `window` 0: no window.
  uint32_t Slots(uint32_t max_rows, uint32_t window) const;
};
DecodeShape MakeDecodeShape(const Tuning& tuning, uint32_t num_heads, uint32_t num_kv_heads,
                            uint32_t head_dim);

struct DecodeArgs {
  DecodePush push;  // `slots` is set by the launch
  uint32_t head_dim = 0;
  uint32_t block_tokens = 0;
  DType kv_dtype = DType::kF16;
  bool fused = false;  // q is the fused projection; no sequence is long (attention_step.h)
  ActivationFormat format = ActivationFormat::kF16;  // int8: whole blocks a workgroup
  uint32_t max_rows = 0;                             // from push.first_row on
};
// REQUIRES tuning.decode.enabled.
Launch DecodeLaunch(const Tuning& tuning, const DecodeArgs& args);

// How attention of long sequences divides its work for a model's heads.
struct TiledShape {
  KernelId kernel = KernelId::kTiled;  // or kTiledCooperative, kTiledQuads, kTiledRows
  uint32_t queries = 1;                // query heads of a workgroup, of one KV head
  uint32_t pairs = 0;                  // of a row and a query head, a workgroup
  uint32_t tile_rows = 0;              // rows of a tile; 0: no tiles, every row is decoded
  uint32_t row_blocks = 1;             // of 16 (row, head) pairs, a subgroup's
  uint32_t positions = 32;             // of K and V at once
  uint32_t parts = 1;                  // of a head's dimensions, each a subgroup's: kTiledRows
};
TiledShape MakeTiledShape(const Tuning& tuning, uint32_t num_heads, uint32_t num_kv_heads,
                          uint32_t head_dim);

struct TiledArgs {
  TiledPush push;
  uint32_t head_dim = 0;
  uint32_t block_tokens = 0;
  DType kv_dtype = DType::kF16;
  ActivationFormat format = ActivationFormat::kF16;  // int8: head_dim is a multiple of 32
  uint32_t max_rows = 0, max_pictures = 0;
};
// REQUIRES a shape with tiles.
Launch TiledLaunch(const Tuning& tuning, const TiledArgs& args);

struct ChainsArgs {
  ChainsPush push;
  uint32_t head_dim = 0;
  uint32_t block_tokens = 0;
  DType kv_dtype = DType::kF16;
  ActivationFormat format = ActivationFormat::kF16;
  uint32_t max_rows = 0;
};
// Whether steps with chains of guesses (Sequences::kChains) have a kernel of their own for them, which
// takes q, k and v from the fused projection.
bool HasChainsKernel(const Tuning& tuning, uint32_t num_heads, uint32_t num_kv_heads,
                     uint32_t head_dim);
// Where tiles are tiled_quads.comp's, they take chains only if there is a kernel for these, and steps of up to 512 pairs
// of rows and query heads have no tiles: each of few tiles would walk through all positions by itself.  Other kernels'
// tiles take chains, and all sequences of kLongRows.
// Measured on an H200, to 8,000 positions: with chains in tiles of tiled_quads.comp steps of 12B, 4B and 1B (heads of
// 256) take 1.1 to 2.4 times as long.  Other kernels' tiles were not measured.
TileRules TileRulesOf(const Tuning& tuning, uint32_t num_heads, uint32_t num_kv_heads,
                      uint32_t head_dim);
// REQUIRES HasChainsKernel.
Launch ChainsLaunch(const Tuning& tuning, const ChainsArgs& args);

// Bytes of an address table for rotation: see qk_norm_rope.comp.  Positions [0, context_len).
std::vector<float> MakeRotationTable(uint32_t head_dim, uint32_t context_len, double theta,
                                     double position_scale);

}  // namespace tandem::gpu
