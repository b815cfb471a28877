#include "services/common/weights/packed_tensor.h"

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/common/tensor/packed_pieces.h"
#include "services/common/weights/vision_weights.h"

namespace tandem {
namespace {

struct RoleTraits {
  std::string_view name;
  bool per_layer;
};

constexpr RoleTraits kRoles[kNumDecoderRoles] = {
    {"embedding", false},    {"head", false},   {"final_norm", false},
    {"input_norm", true},    {"qkv", true},     {"q_norm", true},
    {"k_norm", true},        {"out", true},     {"post_attention_norm", true},
    {"pre_ffn_norm", true},  {"gate_up", true}, {"down", true},
    {"post_ffn_norm", true},
};

constexpr std::string_view kVisionNames[kNumVisionRoles] = {
    "vision patch_weight",    "vision patch_bias",       "vision positions",
    "vision norm1_weight",    "vision norm1_bias",       "vision q_weight",
    "vision q_bias",          "vision k_weight",         "vision k_bias",
    "vision v_weight",        "vision v_bias",           "vision out_weight",
    "vision out_bias",        "vision norm2_weight",     "vision norm2_bias",
    "vision up_weight",       "vision up_bias",          "vision down_weight",
    "vision down_bias",       "vision post_norm_weight", "vision post_norm_bias",
    "vision projection_norm", "vision projection",
};

uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace

std::string_view WeightRoleName(WeightRole role) {
  return IsVision(role) ? kVisionNames[static_cast<int>(ToVisionRole(role))]
                        : kRoles[static_cast<int>(role)].name;
}

bool IsPerLayer(WeightRole role) {
  return IsVision(role) ? IsPerLayer(ToVisionRole(role)) : kRoles[static_cast<int>(role)].per_layer;
}

uint32_t LayersWith(WeightRole role, const ModelConfig& config) {
  if (!IsVision(role)) return IsPerLayer(role) ? config.num_layers : 1;
  if (!config.vision.has_value()) return 0;
  return IsPerLayer(role) ? config.vision->num_layers : 1;
}

bool IsNorm(WeightRole role) {
  if (IsVision(role)) return IsVector(ToVisionRole(role));
  switch (role) {
    case WeightRole::kEmbedding:
    case WeightRole::kHead:
    case WeightRole::kQkv:
    case WeightRole::kOut:
    case WeightRole::kGateUp:
    case WeightRole::kDown:
      return false;
    default:
      return true;
  }
}

Shape2D WeightShape(WeightRole role, const ModelConfig& config) {
  if (IsVision(role)) return VisionShape(ToVisionRole(role), *config.vision);
  switch (role) {
    case WeightRole::kEmbedding:
    case WeightRole::kHead:
      return {config.vocab_size, config.hidden_dim};
    case WeightRole::kFinalNorm:
    case WeightRole::kInputNorm:
    case WeightRole::kPostAttentionNorm:
    case WeightRole::kPreFfnNorm:
    case WeightRole::kPostFfnNorm:
      return {1, config.hidden_dim};
    case WeightRole::kQkv:
      return {config.qkv_dim(), config.hidden_dim};
    case WeightRole::kQNorm:
    case WeightRole::kKNorm:
      return {1, config.head_dim};
    case WeightRole::kOut:
      return {config.hidden_dim, config.q_dim()};
    case WeightRole::kGateUp:
      return {2ull * config.ffn_dim, config.hidden_dim};
    case WeightRole::kDown:
      return {config.hidden_dim, config.ffn_dim};
  }
  return {};
}

std::vector<WeightRole> RolesOfStage(StageKind kind) {
  switch (kind) {
    case StageKind::kEmbed:
      return {WeightRole::kEmbedding};
    case StageKind::kQkv:
      return {WeightRole::kInputNorm, WeightRole::kQkv, WeightRole::kQNorm, WeightRole::kKNorm};
    case StageKind::kAttend:
      return {};
    case StageKind::kOut:
      return {WeightRole::kOut};
    case StageKind::kFfn:
      return {WeightRole::kPostAttentionNorm, WeightRole::kPreFfnNorm, WeightRole::kGateUp,
              WeightRole::kDown, WeightRole::kPostFfnNorm};
    case StageKind::kHead:
      return {WeightRole::kFinalNorm, WeightRole::kHead, WeightRole::kEmbedding};
    case StageKind::kVision: {
      std::vector<WeightRole> roles;
      for (const VisionRole role : AllVisionRoles()) roles.push_back(ToWeightRole(role));
      return roles;
    }
  }
  return {};
}

uint64_t PackedColumns(uint64_t cols) { return AlignUp(cols, kBlockColumns); }

std::vector<Plane> PlanesOf(DType dtype, uint64_t rows, uint64_t cols) {
  TANDEM_CHECK(cols % Traits(dtype).block_elements == 0);
  const uint64_t num_tiles = (rows + kTileRows - 1) / kTileRows;
  std::vector<Plane> planes;
  uint64_t offset = 0;
  for (const Piece& piece : PiecesOf(dtype)) {
    const uint64_t pieces_per_row = PiecesOfRow(piece, cols);
    planes.push_back({offset, piece, pieces_per_row});
    offset = AlignUp(offset + num_tiles * pieces_per_row * piece.stride(), kPlaneAlignment);
  }
  return planes;
}

uint64_t ShardBytes(DType dtype, uint64_t rows, uint64_t cols) {
  const uint64_t whole_tiles = AlignUp(rows, kTileRows);
  return AlignUp(PlanesOf(dtype, rows, cols).back().RowOffset(whole_tiles), kPlaneAlignment);
}

uint64_t ShardBytes(const PackedTensor& tensor, DType dtype, uint64_t rows) {
  if (!IsNorm(tensor.role)) return ShardBytes(dtype, rows, tensor.shape.cols);
  return AlignUp(rows * tensor.shape.cols * sizeof(float), kPlaneAlignment);
}

std::string PackedTensor::Name() const {
  const std::string role_name(WeightRoleName(role));
  return IsPerLayer(role) ? absl::StrFormat("layer %d %s", layer_idx, role_name) : role_name;
}

namespace {

absl::Status CheckFormat(const PackedTensor& tensor, const std::string& name, DType dtype) {
  if (static_cast<uint32_t>(dtype) >= kNumDTypes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: unknown number format %d", name, static_cast<int>(dtype)));
  }
  const DTypeTraits& traits = Traits(dtype);
  if (IsNorm(tensor.role) && dtype != DType::kF32) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: norms are f32, manifest has %s", name, std::string(traits.name)));
  }
  if (tensor.shape.cols % traits.block_elements != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %d columns are no multiple of %s's block of %d", name,
                        tensor.shape.cols, std::string(traits.name), traits.block_elements));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidatePackedTensor(const PackedTensor& tensor, const ModelConfig& config,
                                  const std::vector<uint64_t>& region_bytes) {
  const std::string name = tensor.Name();
  const uint32_t num_layers = LayersWith(tensor.role, config);
  if (num_layers == 0) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: the model has no vision encoder", name));
  }
  const Shape2D expected = WeightShape(tensor.role, config);
  if (!(tensor.shape == expected)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: expected [%d, %d], manifest has [%d, %d]", name, expected.rows,
                        expected.cols, tensor.shape.rows, tensor.shape.cols));
  }
  if (IsPerLayer(tensor.role) && tensor.layer_idx >= num_layers) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: the model has %d layers", name, num_layers));
  }
  uint64_t next_row = 0;
  for (const Shard& shard : tensor.shards) {
    if (shard.first_row != next_row || shard.num_rows == 0 ||
        shard.num_rows > expected.rows - next_row || shard.first_row % kTileRows != 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: shard of rows [%d, +%d) where row %d of %d was due, a multiple of 32", name,
          shard.first_row, shard.num_rows, next_row, expected.rows));
    }
    next_row += shard.num_rows;
    TANDEM_RETURN_IF_ERROR(CheckFormat(tensor, name, shard.dtype));
    if (shard.region >= region_bytes.size()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: region %d of %d", name, shard.region, region_bytes.size()));
    }
    const uint64_t bytes = ShardBytes(tensor, shard);
    const uint64_t capacity = region_bytes[shard.region];
    if (shard.offset % kShardAlignment != 0 || bytes > capacity ||
        shard.offset > capacity - bytes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: %d bytes at offset %d do not fit region %d of %d bytes", name, bytes,
                          shard.offset, shard.region, capacity));
    }
  }
  if (next_row != expected.rows) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: shards end at row %d of %d", name, next_row, expected.rows));
  }
  return absl::OkStatus();
}

}  // namespace tandem
