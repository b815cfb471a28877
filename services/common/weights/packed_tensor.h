// How weights lie in the loader's regions.
//
// A packed matrix of R rows and C columns is stored as one or more *shards*, each a range of
// whole rows inside one region (a matrix larger than a region is cut between rows).  A shard
// holds its rows as *planes*, each starting at a multiple of kPlaneAlignment from the shard's
// offset, each row-major and gap-free, so that quants are read in 16-byte pieces and scales do
// not break their alignment:
//
//   format   plane 0              plane 1               plane 2            plane 3
//   f32      f32 [R, C]
//   f16      f16 [R, C]
//   bf16     bf16 [R, C]
//   q8_0     int8 [R, C]          f16 d [R, C/32]
//   q4_0     nibble [R, C/2 B]    f16 d [R, C/32]
//   q6_k     nibble [R, C/2 B]    2-bit [R, C/4 B]      int8 s [R, C/16]   f16 d [R, C/256]
//
// Nibbles and 2-bit fields lie in element order, low bits first (element e of a row is nibble
// e % 2 of byte e / 2).  Values: q8_0 d*q; q4_0 d*(q - 8); q6_k d*s*((low | high << 4) - 32).
//
// Fused matrices: kQkv has the rows of q heads, then k heads, then v heads; kGateUp alternates,
// row 2i gate i and row 2i+1 up i.  Norm vectors are f32 [1, n] and already hold 1 + w.
// Parts of a fused matrix stored in different formats are packed as f16.
// A matrix is cut at multiples of 256 rows where a region holds that many (of a smaller power of
// two where not), so that tiles and heads stay whole, and never between a gate and its up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "services/common/model/model_config.h"
#include "services/common/plan/stage.h"
#include "services/common/tensor/dtype.h"

namespace tandem {

enum class WeightRole : uint8_t {
  kEmbedding,          // [vocab_size, hidden_dim]; also the head when kHead is absent (tied)
  kHead,               // [vocab_size, hidden_dim]
  kFinalNorm,          // [hidden_dim]
  kInputNorm,          // [hidden_dim], this and the following once per layer
  kQkv,                // [q_dim + 2 kv_dim, hidden_dim]
  kQNorm,              // [head_dim]
  kKNorm,              // [head_dim]
  kOut,                // [hidden_dim, q_dim]
  kPostAttentionNorm,  // [hidden_dim]
  kPreFfnNorm,         // [hidden_dim]
  kGateUp,             // [2 ffn_dim, hidden_dim]
  kDown,               // [hidden_dim, ffn_dim]
  kPostFfnNorm,        // [hidden_dim]
};
inline constexpr int kNumWeightRoles = 13;
inline constexpr uint64_t kPlaneAlignment = 256;
inline constexpr uint64_t kShardAlignment = 4096;  // of a shard's offset in its region

std::string_view WeightRoleName(WeightRole role);
bool IsPerLayer(WeightRole role);
bool IsNorm(WeightRole role);
struct Shape2D {
  uint64_t rows = 0;
  uint64_t cols = 0;
  friend bool operator==(const Shape2D&, const Shape2D&) = default;
};
Shape2D WeightShape(WeightRole role, const ModelConfig& config);
// Roles a worker needs for a stage.  (Embed and Head: kEmbedding; kHead too when present.)
std::vector<WeightRole> RolesOfStage(StageKind kind);

struct Plane {
  uint64_t offset = 0;     // from the shard's start, bytes
  uint64_t row_bytes = 0;  // stride between rows
};

// Planes of a shard of `rows` x `cols`; cols must be a multiple of the format's block.
std::vector<Plane> PlanesOf(DType dtype, uint64_t rows, uint64_t cols);
// Bytes of such a shard, a multiple of kPlaneAlignment.
uint64_t ShardBytes(DType dtype, uint64_t rows, uint64_t cols);

struct Shard {
  uint64_t first_row = 0;
  uint64_t num_rows = 0;
  uint32_t region = 0;  // index into the model's regions
  uint64_t offset = 0;  // in the region, a multiple of kShardAlignment
};

struct PackedTensor {
  WeightRole role = WeightRole::kEmbedding;
  uint32_t layer_idx = 0;  // 0 for roles that are not per layer
  DType dtype = DType::kF32;
  Shape2D shape;
  std::vector<Shard> shards;  // in row order, covering every row once

  std::string Name() const;  // "layer 7 qkv"
};

// Checks shape, dtype, shard coverage and bounds of one tensor against the config and the
// regions' sizes.  INVALID_ARGUMENT names the tensor and both values.
absl::Status ValidatePackedTensor(const PackedTensor& tensor, const ModelConfig& config,
                                  const std::vector<uint64_t>& region_bytes);

}  // namespace tandem
