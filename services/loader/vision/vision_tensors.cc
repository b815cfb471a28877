#include "services/loader/vision/vision_tensors.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/status_macros.h"
#include "services/loader/formats/byte_source.h"

namespace tandem::loader {
namespace {

struct NameRow {
  std::string_view gguf;         // layers: after "v.blk.N."
  std::string_view safetensors;  // layers: after "encoder.layers.N."
  VisionRole role;
};

constexpr NameRow kLayerNames[] = {
    {"ln1.weight", "layer_norm1.weight", VisionRole::kNorm1Weight},
    {"ln1.bias", "layer_norm1.bias", VisionRole::kNorm1Bias},
    {"attn_q.weight", "self_attn.q_proj.weight", VisionRole::kQWeight},
    {"attn_q.bias", "self_attn.q_proj.bias", VisionRole::kQBias},
    {"attn_k.weight", "self_attn.k_proj.weight", VisionRole::kKWeight},
    {"attn_k.bias", "self_attn.k_proj.bias", VisionRole::kKBias},
    {"attn_v.weight", "self_attn.v_proj.weight", VisionRole::kVWeight},
    {"attn_v.bias", "self_attn.v_proj.bias", VisionRole::kVBias},
    {"attn_out.weight", "self_attn.out_proj.weight", VisionRole::kOutWeight},
    {"attn_out.bias", "self_attn.out_proj.bias", VisionRole::kOutBias},
    {"ln2.weight", "layer_norm2.weight", VisionRole::kNorm2Weight},
    {"ln2.bias", "layer_norm2.bias", VisionRole::kNorm2Bias},
    {"ffn_up.weight", "mlp.fc1.weight", VisionRole::kUpWeight},
    {"ffn_up.bias", "mlp.fc1.bias", VisionRole::kUpBias},
    {"ffn_down.weight", "mlp.fc2.weight", VisionRole::kDownWeight},
    {"ffn_down.bias", "mlp.fc2.bias", VisionRole::kDownBias},
};
// Safetensors: the tower's without their prefix, the projector's likewise.
constexpr NameRow kTowerNames[] = {
    {"v.patch_embd.weight", "embeddings.patch_embedding.weight", VisionRole::kPatchWeight},
    {"v.patch_embd.bias", "embeddings.patch_embedding.bias", VisionRole::kPatchBias},
    {"v.position_embd.weight", "embeddings.position_embedding.weight", VisionRole::kPositions},
    {"v.post_ln.weight", "post_layernorm.weight", VisionRole::kPostNormWeight},
    {"v.post_ln.bias", "post_layernorm.bias", VisionRole::kPostNormBias},
};
constexpr NameRow kProjectorNames[] = {
    {"mm.soft_emb_norm.weight", "mm_soft_emb_norm.weight", VisionRole::kProjectionNorm},
    {"mm.input_projection.weight", "mm_input_projection_weight", VisionRole::kProjection},
};
// Before and after transformers 4.52, and transformers 5, which drops a level.
constexpr std::string_view kTowerPrefixes[] = {
    "vision_tower.vision_model.", "model.vision_tower.vision_model.", "model.vision_tower."};
constexpr std::string_view kProjectorPrefixes[] = {"multi_modal_projector.",
                                                   "model.multi_modal_projector."};

struct Use {
  VisionRole role = VisionRole::kPatchWeight;
  uint32_t layer_idx = 0;
};

std::optional<std::string_view> Without(std::string_view name,
                                        std::span<const std::string_view> prefixes) {
  for (const std::string_view prefix : prefixes) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return std::nullopt;
}

std::string_view NameIn(const NameRow& row, NameStyle style) {
  return style == NameStyle::kGguf ? row.gguf : row.safetensors;
}

std::optional<Use> Find(std::span<const NameRow> rows, std::string_view name, NameStyle style,
                        uint32_t layer_idx = 0) {
  for (const NameRow& row : rows) {
    if (NameIn(row, style) == name) return Use{row.role, layer_idx};
  }
  return std::nullopt;
}

// "7.attn_q.weight", after the layers' prefix: a plain decimal of at most 4 digits and a dot.
std::optional<Use> FindInLayer(std::string_view name, NameStyle style) {
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot > 4) return std::nullopt;
  if (dot > 1 && name[0] == '0') return std::nullopt;
  uint32_t layer = 0;
  for (const char c : name.substr(0, dot)) {
    if (c < '0' || c > '9') return std::nullopt;
    layer = layer * 10 + static_cast<uint32_t>(c - '0');
  }
  return Find(kLayerNames, name.substr(dot + 1), style, layer);
}

// The use of a name for which IsVisionName holds; nullopt when it is unknown.
std::optional<Use> Resolve(std::string_view name, NameStyle style) {
  const bool gguf = style == NameStyle::kGguf;
  std::string_view in_tower = name;
  if (!gguf) {
    if (const auto rest = Without(name, kProjectorPrefixes)) {
      return Find(kProjectorNames, *rest, style);
    }
    in_tower = *Without(name, kTowerPrefixes);
  }
  const std::string_view layers = gguf ? "v.blk." : "encoder.layers.";
  if (in_tower.starts_with(layers)) return FindInLayer(in_tower.substr(layers.size()), style);
  if (const auto use = Find(kTowerNames, in_tower, style)) return use;
  return gguf ? Find(kProjectorNames, name, style) : std::nullopt;
}

// Whether the file names fc1 ffn_down and fc2 ffn_up.  llama.cpp's converter did so until May 2025
// (its pull request 13290), and its reader swaps them back, as here.  Equal dimensions do not tell.
bool HasSwappedFfn(const std::vector<FileTensor>& file_tensors, const VisionConfig& config) {
  if (config.ffn_dim == config.hidden_dim) return false;
  const std::vector<uint64_t> fc1 = {config.ffn_dim, config.hidden_dim};
  return std::any_of(file_tensors.begin(), file_tensors.end(), [&fc1](const FileTensor& tensor) {
    return tensor.name == "v.blk.0.ffn_down.weight" && tensor.shape == fc1;
  });
}

VisionRole SwapFfn(VisionRole role) {
  switch (role) {
    case VisionRole::kUpWeight:
      return VisionRole::kDownWeight;
    case VisionRole::kUpBias:
      return VisionRole::kDownBias;
    case VisionRole::kDownWeight:
      return VisionRole::kUpWeight;
    case VisionRole::kDownBias:
      return VisionRole::kUpBias;
    default:
      return role;
  }
}

// The file's own dimensions: the patch convolution keeps its four.
std::vector<uint64_t> FileShape(VisionRole role, const VisionConfig& config) {
  if (role == VisionRole::kPatchWeight) {
    return {config.hidden_dim, 3, config.patch_size, config.patch_size};
  }
  const Shape2D shape = VisionShape(role, config);
  if (IsVector(role)) return {shape.cols};
  return {shape.rows, shape.cols};
}

absl::StatusOr<VisionTensor> CheckTensor(const FileTensor& file_tensor, const Use& use,
                                         const VisionConfig& config, NameStyle style) {
  const auto refuse = [&file_tensor](std::string_view reason) {
    return FormatError(file_tensor.file_offset,
                       absl::StrFormat("tensor %s%s", file_tensor.name, std::string(reason)));
  };
  if (use.layer_idx >= config.num_layers) {
    return refuse(absl::StrFormat(": the vision encoder has %d layers", config.num_layers));
  }
  const std::vector<uint64_t> expected = FileShape(use.role, config);
  if (file_tensor.shape != expected) {
    return refuse(absl::StrFormat(": expected [%s], file has [%s]", absl::StrJoin(expected, ", "),
                                  absl::StrJoin(file_tensor.shape, ", ")));
  }
  if (!file_tensor.dtype.has_value()) {
    return refuse(
        absl::StrFormat(" has type %s; supported are F32, F16, BF16 and, for matrices, the "
                        "formats of blocks that models may have",
                        file_tensor.dtype_name));
  }
  const Shape2D shape = VisionShape(use.role, config);
  const DTypeTraits& traits = Traits(*file_tensor.dtype);
  if (traits.block_elements != 1 && (IsVector(use.role) || use.role == VisionRole::kPatchWeight ||
                                     shape.cols % traits.block_elements != 0)) {
    return refuse(absl::StrFormat(": %s is no format for it; F32, F16 or BF16 is expected",
                                  file_tensor.dtype_name));
  }
  VisionTensor tensor;
  tensor.name = file_tensor.name;
  tensor.dtype = *file_tensor.dtype;
  tensor.shape = shape;
  tensor.file_shape = file_tensor.shape;
  tensor.file_offset = file_tensor.file_offset;
  tensor.num_bytes = file_tensor.num_bytes;
  tensor.file = file_tensor.file;
  tensor.role = use.role;
  tensor.layer_idx = use.layer_idx;
  const bool holds_w = style == NameStyle::kSafetensors;
  tensor.norm_offset = use.role == VisionRole::kProjectionNorm && holds_w ? 1.0f : 0.0f;
  return tensor;
}

using Slot = std::pair<uint32_t, VisionRole>;
Slot SlotOf(const VisionTensor& tensor) { return {tensor.layer_idx, tensor.role}; }

std::string NameOf(Slot slot, NameStyle style) {
  const auto find = [&](std::span<const NameRow> rows) -> std::string {
    for (const NameRow& row : rows) {
      if (row.role == slot.second) return std::string(NameIn(row, style));
    }
    return "";
  };
  const bool gguf = style == NameStyle::kGguf;
  if (IsPerLayer(slot.second)) {
    return absl::StrFormat("%s.%d.%s", gguf ? "v.blk" : "encoder.layers", slot.first,
                           find(kLayerNames));
  }
  const std::string tower = find(kTowerNames);
  return tower.empty() ? find(kProjectorNames) : tower;
}

absl::Status CheckCompleteness(const VisionConfig& config, const std::vector<VisionTensor>& sorted,
                               NameStyle style) {
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (SlotOf(sorted[i - 1]) == SlotOf(sorted[i])) {
      return FormatError(sorted[i].file_offset,
                         absl::StrFormat("tensors %s and %s are the same part of the encoder",
                                         sorted[i - 1].name, sorted[i].name));
    }
  }
  const auto require = [&](Slot slot) {
    const auto found =
        std::lower_bound(sorted.begin(), sorted.end(), slot,
                         [](const VisionTensor& t, const Slot& s) { return SlotOf(t) < s; });
    if (found != sorted.end() && SlotOf(*found) == slot) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("the vision encoder's tensor %s is missing", NameOf(slot, style)));
  };
  for (const VisionRole role : AllVisionRoles()) {
    const uint32_t num_layers = IsPerLayer(role) ? config.num_layers : 1;
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
      TANDEM_RETURN_IF_ERROR(require({layer, role}));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool IsVisionName(std::string_view name, NameStyle style) {
  if (style == NameStyle::kGguf) return name.starts_with("v.") || name.starts_with("mm.");
  return Without(name, kTowerPrefixes).has_value() || Without(name, kProjectorPrefixes).has_value();
}

std::string GgufVisionName(VisionRole role, uint32_t layer_idx) {
  return NameOf({layer_idx, role}, NameStyle::kGguf);
}

absl::StatusOr<std::vector<VisionTensor>> SelectVisionTensors(
    const VisionConfig& config, const std::vector<FileTensor>& file_tensors, NameStyle style) {
  const bool swapped = style == NameStyle::kGguf && HasSwappedFfn(file_tensors, config);
  std::vector<VisionTensor> selected;
  for (const FileTensor& file_tensor : file_tensors) {
    const bool ours = IsVisionName(file_tensor.name, style);
    if (!ours && style == NameStyle::kSafetensors) continue;
    std::optional<Use> use = ours ? Resolve(file_tensor.name, style) : std::nullopt;
    if (!use.has_value()) {
      return FormatError(
          file_tensor.file_offset,
          absl::StrFormat("tensor %s is no part of a Gemma 3 vision encoder", file_tensor.name));
    }
    if (swapped) use->role = SwapFfn(use->role);
    TANDEM_ASSIGN_OR_RETURN(VisionTensor tensor, CheckTensor(file_tensor, *use, config, style));
    selected.push_back(std::move(tensor));
  }
  std::sort(selected.begin(), selected.end(),
            [](const VisionTensor& a, const VisionTensor& b) { return SlotOf(a) < SlotOf(b); });
  TANDEM_RETURN_IF_ERROR(CheckCompleteness(config, selected, style));
  return selected;
}

}  // namespace tandem::loader
