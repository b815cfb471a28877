#include "services/loader/formats/decoder_tensors.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/loader/formats/byte_source.h"
#include "services/loader/formats/printable.h"

namespace tandem::loader {
namespace {

struct NameRow {
  std::string_view gguf;         // after "blk.N."
  std::string_view safetensors;  // after "layers.N."
  WeightRole role;
  SourcePart part = SourcePart::kWhole;
};

constexpr NameRow kLayerNames[] = {
    {"attn_norm", "input_layernorm", WeightRole::kInputNorm},
    {"attn_q", "self_attn.q_proj", WeightRole::kQkv, SourcePart::kQ},
    {"attn_k", "self_attn.k_proj", WeightRole::kQkv, SourcePart::kK},
    {"attn_v", "self_attn.v_proj", WeightRole::kQkv, SourcePart::kV},
    {"attn_q_norm", "self_attn.q_norm", WeightRole::kQNorm},
    {"attn_k_norm", "self_attn.k_norm", WeightRole::kKNorm},
    {"attn_output", "self_attn.o_proj", WeightRole::kOut},
    {"post_attention_norm", "post_attention_layernorm", WeightRole::kPostAttentionNorm},
    {"ffn_norm", "pre_feedforward_layernorm", WeightRole::kPreFfnNorm},
    {"ffn_gate", "mlp.gate_proj", WeightRole::kGateUp, SourcePart::kGate},
    {"ffn_up", "mlp.up_proj", WeightRole::kGateUp, SourcePart::kUp},
    {"ffn_down", "mlp.down_proj", WeightRole::kDown},
    {"post_ffw_norm", "post_feedforward_layernorm", WeightRole::kPostFfnNorm},
};
constexpr NameRow kModelNames[] = {
    {"token_embd", "embed_tokens", WeightRole::kEmbedding},
    {"output_norm", "norm", WeightRole::kFinalNorm},
    {"output", "lm_head", WeightRole::kHead},
};
// Where releases put the decoder: text-only checkpoints, image ones before and after
// transformers 4.52, and a bare decoder.
constexpr std::string_view kPrefixes[] = {"model.language_model.", "language_model.model.",
                                          "language_model.", "model.", ""};

struct Use {
  enum Kind { kDecoder, kOther, kUnknownInLayer } kind = kOther;
  const NameRow* row = nullptr;
  uint32_t layer_idx = 0;
};

bool Consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool ConsumeSuffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

// A plain decimal of at most 4 digits followed by a dot.
std::optional<uint32_t> ConsumeLayerIndex(std::string_view& text) {
  const size_t dot = text.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot > 4) return std::nullopt;
  if (dot > 1 && text[0] == '0') return std::nullopt;
  uint32_t value = 0;
  for (const char c : text.substr(0, dot)) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint32_t>(c - '0');
  }
  text.remove_prefix(dot + 1);
  return value;
}

std::string_view NameIn(const NameRow& row, NameStyle style) {
  return style == NameStyle::kGguf ? row.gguf : row.safetensors;
}

// How a name without its prefix is used.
Use Resolve(std::string_view name, NameStyle style) {
  Use use;
  if (Consume(name, style == NameStyle::kGguf ? "blk." : "layers.")) {
    use.kind = Use::kUnknownInLayer;
    // Written by old exporters; the values follow from the config.
    if (name.ends_with(".rotary_emb.inv_freq")) use.kind = Use::kOther;
    const std::optional<uint32_t> layer = ConsumeLayerIndex(name);
    if (!layer.has_value() || !ConsumeSuffix(name, ".weight")) return use;
    for (const NameRow& row : kLayerNames) {
      if (NameIn(row, style) == name) return {Use::kDecoder, &row, *layer};
    }
    return use;
  }
  if (!ConsumeSuffix(name, ".weight")) return use;
  for (const NameRow& row : kModelNames) {
    if (NameIn(row, style) == name) return {Use::kDecoder, &row, 0};
  }
  return use;
}

Use ResolveName(std::string_view name, NameStyle style) {
  if (style == NameStyle::kGguf) return Resolve(name, style);
  for (const std::string_view prefix : kPrefixes) {
    std::string_view rest = name;
    if (!Consume(rest, prefix)) continue;
    const Use use = Resolve(rest, style);
    if (use.kind != Use::kOther) return use;
  }
  return {};
}

Shape2D ExpectedShape(const NameRow& row, const ModelConfig& config) {
  switch (row.part) {
    case SourcePart::kQ:
      return {config.q_dim(), config.hidden_dim};
    case SourcePart::kK:
    case SourcePart::kV:
      return {config.kv_dim(), config.hidden_dim};
    case SourcePart::kGate:
    case SourcePart::kUp:
      return {config.ffn_dim, config.hidden_dim};
    case SourcePart::kWhole:
      break;
  }
  return WeightShape(row.role, config);
}

std::vector<uint64_t> FileShape(WeightRole role, Shape2D shape) {
  if (IsNorm(role)) return {shape.cols};
  return {shape.rows, shape.cols};
}

std::string Dims(const std::vector<uint64_t>& shape) {
  return absl::StrFormat("[%s]", absl::StrJoin(shape, ", "));
}

absl::StatusOr<SourceTensor> CheckTensor(const FileTensor& file_tensor, const Use& use,
                                         const ModelConfig& config, NameStyle style) {
  if (use.layer_idx >= config.num_layers) {
    return FormatError(
        file_tensor.file_offset,
        absl::StrFormat("tensor %s: the model has %d layers", file_tensor.name, config.num_layers));
  }
  const Shape2D shape = ExpectedShape(*use.row, config);
  const std::vector<uint64_t> expected = FileShape(use.row->role, shape);
  if (file_tensor.shape != expected) {
    return FormatError(file_tensor.file_offset,
                       absl::StrFormat("tensor %s: expected %s, file has %s", file_tensor.name,
                                       Dims(expected), Dims(file_tensor.shape)));
  }
  if (!file_tensor.dtype.has_value()) {
    return FormatError(file_tensor.file_offset,
                       absl::StrFormat("tensor %s has type %s; supported are F32, F16 and BF16",
                                       file_tensor.name, file_tensor.dtype_name));
  }
  if (IsNorm(use.row->role) && Traits(*file_tensor.dtype).block_elements != 1) {
    return FormatError(file_tensor.file_offset,
                       absl::StrFormat("tensor %s: a norm in %s; F32, F16 or BF16 is expected",
                                       file_tensor.name, file_tensor.dtype_name));
  }
  SourceTensor tensor;
  tensor.name = file_tensor.name;
  tensor.dtype = *file_tensor.dtype;
  tensor.shape = shape;
  tensor.file_offset = file_tensor.file_offset;
  tensor.num_bytes = file_tensor.num_bytes;
  tensor.file = file_tensor.file;
  tensor.role = use.row->role;
  tensor.layer_idx = use.layer_idx;
  tensor.part = use.row->part;
  tensor.norm_offset = IsNorm(tensor.role) && style == NameStyle::kSafetensors ? 1.0f : 0.0f;
  return tensor;
}

using Slot = std::tuple<WeightRole, uint32_t, SourcePart>;
Slot SlotOf(const SourceTensor& tensor) { return {tensor.role, tensor.layer_idx, tensor.part}; }

absl::Status CheckCompleteness(const ModelConfig& config, const std::vector<SourceTensor>& sorted,
                               NameStyle style, bool tied) {
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (SlotOf(sorted[i - 1]) == SlotOf(sorted[i])) {
      return FormatError(sorted[i].file_offset,
                         absl::StrFormat("tensors %s and %s are the same part of the model",
                                         sorted[i - 1].name, sorted[i].name));
    }
  }
  const auto require = [&](const NameRow& row, uint32_t layer) {
    const Slot slot{row.role, layer, row.part};
    const auto found = std::lower_bound(
        sorted.begin(), sorted.end(), slot,
        [](const SourceTensor& tensor, const Slot& wanted) { return SlotOf(tensor) < wanted; });
    if (found != sorted.end() && SlotOf(*found) == slot) return absl::OkStatus();
    const std::string name(NameIn(row, style));
    const std::string prefix(style == NameStyle::kGguf ? "blk" : "layers");
    return absl::InvalidArgumentError(absl::StrFormat(
        "tensor %s.weight is missing",
        IsPerLayer(row.role) ? absl::StrFormat("%s.%d.%s", prefix, layer, name) : name));
  };
  for (const NameRow& row : kModelNames) {
    if (row.role == WeightRole::kHead && (tied || style == NameStyle::kGguf)) continue;
    TANDEM_RETURN_IF_ERROR(require(row, 0));
  }
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const NameRow& row : kLayerNames) TANDEM_RETURN_IF_ERROR(require(row, layer));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DecoderTensors> SelectDecoderTensors(const ModelConfig& config,
                                                    const std::vector<FileTensor>& file_tensors,
                                                    NameStyle style, bool tied) {
  DecoderTensors selected;
  for (const FileTensor& file_tensor : file_tensors) {
    const Use use = ResolveName(file_tensor.name, style);
    if (use.kind == Use::kUnknownInLayer) {
      return FormatError(
          file_tensor.file_offset,
          absl::StrFormat("tensor %s is no part of a Gemma 3 decoder layer", file_tensor.name));
    }
    if (use.kind == Use::kOther || (tied && use.row->role == WeightRole::kHead)) {
      selected.skipped.push_back({Printable(file_tensor.name, 120), file_tensor.dtype_name,
                                  file_tensor.shape, file_tensor.num_bytes});
      continue;
    }
    TANDEM_ASSIGN_OR_RETURN(SourceTensor tensor, CheckTensor(file_tensor, use, config, style));
    selected.tensors.push_back(std::move(tensor));
  }
  std::sort(selected.tensors.begin(), selected.tensors.end(),
            [](const SourceTensor& a, const SourceTensor& b) { return SlotOf(a) < SlotOf(b); });
  TANDEM_RETURN_IF_ERROR(CheckCompleteness(config, selected.tensors, style, tied));
  return selected;
}

std::string GgufTensorName(WeightRole role, uint32_t layer_idx, SourcePart part) {
  for (const NameRow& row : kModelNames) {
    if (row.role == role) return absl::StrFormat("%s.weight", std::string(row.gguf));
  }
  for (const NameRow& row : kLayerNames) {
    if (row.role != role || row.part != part) continue;
    return absl::StrFormat("blk.%d.%s.weight", layer_idx, std::string(row.gguf));
  }
  TANDEM_CHECK(false);
  return "";
}

}  // namespace tandem::loader
