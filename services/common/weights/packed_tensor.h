// How weights lie in the loader's regions.
//
// A packed matrix of R rows and C columns is stored as one or more *shards*, each a range of
// whole rows inside one region (a matrix larger than a region is cut between rows).  A shard
// holds its rows in tiles of 32 (tensor/packed_row.h), the last one filled up with rows of zeros,
// as *planes*, each starting at a multiple of kPlaneAlignment from the shard's offset.  Row r's
// piece i of a plane lies at
//
//   offset + ((r / 32 * pieces_per_row + i) * 32 + r % 32) * piece_bytes
//
// with pieces_per_row = C in whole blocks of 32 / elements of a piece, rounded up.  Pieces {bytes, elements}:
//
//   format       plane 0             plane 1             plane 2             plane 3
//   f32          f32     {16, 4}
//   f16, bf16    16-bit  {16, 8}
//   q8_0         int8    {16, 16}    d[8]    {16, 256}
//   q4_0, iq4_nl nibbles {16, 32}    d[8]    {16, 256}
//   q5_0         nibbles {16, 32}    bits    {16, 128}   d[8]    {16, 256}
//   q4_k         nibbles {16, 32}    s[8], m[8] {16, 256}  d, dmin {4, 256}
//   q5_k         nibbles {16, 32}    bits    {16, 128}   s[8], m[8] {16, 256}  d, dmin {4, 256}
//   q6_k         nibbles {16, 32}    pairs   {16, 64}    s[16]   {16, 256}   d    {2, 256}
//
// d and dmin are f16; s and m uint8, q6_k's s int8.  Within a run of 32 elements:
//   nibbles  byte i holds element i in its low and element i + 16 in its high bits.  q4_0's are
//            signed: q - 8 in two's complement.
//   bits     bit 4 of the codes, one 32-bit word: element 4 s + i (s < 8, i < 4) is bit 8 i + s, so
//            that (word >> s) & 0x01010101 are elements 4 s .. 4 s + 3, one a byte.
//   pairs    bits 4 and 5, two words, of elements 0..15 and 16..31: element 4 s + i of its half is
//            bits 8 i + 2 s and 8 i + 2 s + 1, so that (word >> 2 s) & 0x03030303 are elements
//            4 s .. 4 s + 3, one a byte.
// Numbers narrower than a piece follow each other in element order: d[j], s[j] and m[j] of a piece
// of 256 elements belong to elements 32 j .. 32 j + 31, q6_k's s[j] to 16 j .. 16 j + 15.  A row's
// last pieces are filled up with zeros.  Values as for files (tensor/quant.h).
//
// Fused matrices: kQkv has the rows of q heads, then k heads, then v heads; kGateUp alternates,
// row 2i gate i and row 2i+1 up i.
// Shards may differ in format: files mix them, V in six bits beside Q and K in four.
// A matrix is cut at multiples of 256 rows where a region holds that many (of 128, 64 or 32 where
// not), so that tiles and heads stay whole and a gate stays with its up.
// Vectors (IsNorm) are not cut into tiles: they are n f32 in a row, and norms hold 1 + w already.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "services/common/model/model_config.h"
#include "services/common/plan/stage.h"
#include "services/common/tensor/dtype.h"
#include "services/common/tensor/packed_row.h"
#include "services/common/weights/vision_role.h"

namespace tandem {

// The largest region that the loader makes by default.
inline constexpr uint64_t kDefaultRegionBytes = uint64_t{1} << 30;

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
inline constexpr int kNumDecoderRoles = 13;
// The roles of a vision encoder follow, in the order of VisionRole.
inline constexpr int kNumWeightRoles = kNumDecoderRoles + kNumVisionRoles;
inline constexpr WeightRole ToWeightRole(VisionRole role) {
  return static_cast<WeightRole>(kNumDecoderRoles + static_cast<int>(role));
}
inline constexpr bool IsVision(WeightRole role) {
  return static_cast<int>(role) >= kNumDecoderRoles;
}
// REQUIRES IsVision(role).
inline constexpr VisionRole ToVisionRole(WeightRole role) {
  return static_cast<VisionRole>(static_cast<int>(role) - kNumDecoderRoles);
}
inline constexpr uint32_t kBlockColumns = 32;  // kernels read a row in blocks of so many
inline constexpr uint64_t kPlaneAlignment = 256;
inline constexpr uint64_t kShardAlignment = 4096;  // of a shard's offset in its region

std::string_view WeightRoleName(WeightRole role);
bool IsPerLayer(WeightRole role);
// A vector, kept as f32: a norm, or one of the encoder's norms and biases.
bool IsNorm(WeightRole role);
// Layers that have a tensor of the role; 1 for roles that are not per layer, 0 for an encoder's
// without config.vision.
uint32_t LayersWith(WeightRole role, const ModelConfig& config);
struct Shape2D {
  uint64_t rows = 0;
  uint64_t cols = 0;
  friend bool operator==(const Shape2D&, const Shape2D&) = default;
};
// REQUIRES config.vision for an encoder's roles.
Shape2D WeightShape(WeightRole role, const ModelConfig& config);
// Roles a worker needs for a stage.  (Embed and Head: kEmbedding; kHead too when present.)
std::vector<WeightRole> RolesOfStage(StageKind kind);

struct Plane {
  uint64_t offset = 0;  // from the shard's start, bytes
  Piece piece;
  uint64_t pieces_per_row = 0;

  // From the shard's start to the first piece of a row.
  uint64_t RowOffset(uint64_t row) const {
    return offset + row / kTileRows * pieces_per_row * piece.stride() +
           row % kTileRows * piece.bytes;
  }
};

// Columns of a row as it is packed, zeros included.
uint64_t PackedColumns(uint64_t cols);

// Planes of a shard of `rows` x `cols` of a matrix; cols must be a multiple of the format's block.
std::vector<Plane> PlanesOf(DType dtype, uint64_t rows, uint64_t cols);
// Bytes of such a shard, a multiple of kPlaneAlignment.
uint64_t ShardBytes(DType dtype, uint64_t rows, uint64_t cols);

struct Shard {
  uint64_t first_row = 0;
  uint64_t num_rows = 0;
  uint32_t region = 0;  // index into the model's regions
  uint64_t offset = 0;  // in the region, a multiple of kShardAlignment
  DType dtype = DType::kF32;
};

struct PackedTensor {
  WeightRole role = WeightRole::kEmbedding;
  uint32_t layer_idx = 0;  // 0 for roles that are not per layer
  Shape2D shape;
  std::vector<Shard> shards;  // in row order, covering every row once

  std::string Name() const;  // "layer 7 qkv"
};

// Bytes of a shard of `rows` rows in `dtype` of a tensor, matrix or norm.
uint64_t ShardBytes(const PackedTensor& tensor, DType dtype, uint64_t rows);
inline uint64_t ShardBytes(const PackedTensor& tensor, const Shard& shard) {
  return ShardBytes(tensor, shard.dtype, shard.num_rows);
}

// Checks shape, formats (norms: f32), shard coverage and bounds of one tensor against the config
// and the regions' sizes.  INVALID_ARGUMENT names the tensor and both values.
absl::Status ValidatePackedTensor(const PackedTensor& tensor, const ModelConfig& config,
                                  const std::vector<uint64_t>& region_bytes);

}  // namespace tandem
