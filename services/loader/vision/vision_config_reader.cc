#include "services/loader/vision/vision_config_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/loader/formats/json.h"

namespace tandem::loader {
namespace {

using nlohmann::json;

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr uint64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kDefaultScaleFactor = 4;  // patches of a side that llama.cpp averages

absl::Status ReadCount(const json& object, std::string_view name, uint32_t default_value,
                       uint32_t& out) {
  TANDEM_ASSIGN_OR_RETURN(const auto value, JsonInteger(object, name, 0, kMaxInt32));
  out = value.has_value() ? static_cast<uint32_t>(*value) : default_value;
  return absl::OkStatus();
}

absl::Status ReadEncoder(const json& vision, VisionConfig& out) {
  TANDEM_RETURN_IF_ERROR(ReadCount(vision, "image_size", 224, out.image_size));
  TANDEM_RETURN_IF_ERROR(ReadCount(vision, "patch_size", 16, out.patch_size));
  TANDEM_RETURN_IF_ERROR(ReadCount(vision, "num_hidden_layers", 12, out.num_layers));
  TANDEM_RETURN_IF_ERROR(ReadCount(vision, "hidden_size", 768, out.hidden_dim));
  TANDEM_RETURN_IF_ERROR(ReadCount(vision, "intermediate_size", 3072, out.ffn_dim));
  TANDEM_RETURN_IF_ERROR(ReadCount(vision, "num_attention_heads", 12, out.num_heads));
  TANDEM_ASSIGN_OR_RETURN(const auto eps, JsonFloat(vision, "layer_norm_eps"));
  out.layer_norm_eps = eps.value_or(1e-6f);
  TANDEM_ASSIGN_OR_RETURN(const auto type, JsonString(vision, "model_type"));
  if (type.value_or("siglip_vision_model") != "siglip_vision_model") {
    return absl::InvalidArgumentError(
        absl::StrFormat("vision_config.model_type %s is not supported; siglip_vision_model is",
                        type->substr(0, 40)));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto activation, JsonString(vision, "hidden_act"));
  if (activation.value_or("gelu_pytorch_tanh") != "gelu_pytorch_tanh") {
    return absl::InvalidArgumentError(
        absl::StrFormat("vision_config.hidden_act is %s; gelu_pytorch_tanh is supported",
                        activation->substr(0, 40)));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto channels, JsonInteger(vision, "num_channels", 0, kMaxInt32));
  if (channels.value_or(3) != 3) {
    return absl::InvalidArgumentError(
        absl::StrFormat("vision_config.num_channels is %d; 3 is supported", *channels));
  }
  return absl::OkStatus();
}

absl::Status ReadThree(const json& object, std::string_view name, std::array<float, 3>& out) {
  const json* values = JsonMember(object, name);
  if (values == nullptr) return absl::OkStatus();
  if (!values->is_array() || values->size() != 3) {
    return absl::InvalidArgumentError(absl::StrFormat("%s is %s; three numbers are expected",
                                                      std::string(name), PrintJson(*values, 40)));
  }
  for (size_t c = 0; c < 3; ++c) {
    if (!(*values)[c].is_number()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s has %s, which is no number", std::string(name), PrintJson((*values)[c], 40)));
    }
    out[c] = static_cast<float>((*values)[c].get<double>());
  }
  return absl::OkStatus();
}

// Steps that this preparation always takes.
absl::Status RefuseOtherSteps(const json& preprocessor) {
  for (const std::string_view name : {"do_resize", "do_rescale", "do_normalize"}) {
    TANDEM_ASSIGN_OR_RETURN(const auto set, JsonBool(preprocessor, name));
    if (!set.value_or(true)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s is false, which is not supported", std::string(name)));
    }
  }
  constexpr int64_t kBilinear = 2;
  TANDEM_ASSIGN_OR_RETURN(const auto resample, JsonInteger(preprocessor, "resample", 0, kMaxInt32));
  if (resample.value_or(kBilinear) != kBilinear) {
    return absl::InvalidArgumentError(
        absl::StrFormat("resample is %d; 2 (bilinear) is supported", *resample));
  }
  return absl::OkStatus();
}

absl::Status ReadPixels(const json& preprocessor, VisionConfig& out) {
  TANDEM_RETURN_IF_ERROR(RefuseOtherSteps(preprocessor));
  TANDEM_RETURN_IF_ERROR(ReadThree(preprocessor, "image_mean", out.pixels.mean));
  TANDEM_RETURN_IF_ERROR(ReadThree(preprocessor, "image_std", out.pixels.std));
  if (const json* rescale = JsonMember(preprocessor, "rescale_factor")) {
    if (!rescale->is_number()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("rescale_factor is %s, which is no number", PrintJson(*rescale, 40)));
    }
    out.pixels.rescale = rescale->get<double>();
  }
  TANDEM_ASSIGN_OR_RETURN(const json* size, JsonObject(preprocessor, "size"));
  if (size == nullptr) return absl::OkStatus();
  for (const std::string_view side : {"height", "width"}) {
    TANDEM_ASSIGN_OR_RETURN(const auto value, JsonInteger(*size, side, 0, kMaxInt32));
    if (value.has_value() && *value != out.image_size) {
      return absl::InvalidArgumentError(
          absl::StrFormat("preprocessor_config.json has a %s of %d, vision_config.image_size is %d",
                          std::string(side), *value, out.image_size));
    }
  }
  return absl::OkStatus();
}

absl::Status RequireUnsigned(const GgufHeader& header, std::string_view key, uint32_t& out) {
  TANDEM_ASSIGN_OR_RETURN(const auto value, header.Unsigned(key, kMaxUint32));
  if (!value.has_value()) {
    return absl::InvalidArgumentError(absl::StrFormat("key %s is missing", std::string(key)));
  }
  out = static_cast<uint32_t>(*value);
  return absl::OkStatus();
}

absl::Status ReadThree(const GgufHeader& header, std::string_view key, std::array<float, 3>& out) {
  const GgufValue* value = header.Find(key);
  if (value == nullptr) return absl::OkStatus();
  if (value->type != GgufType::kArray || value->element_type != GgufType::kF32 ||
      value->count != 3) {
    return FormatError(value->offset,
                       absl::StrFormat("%s: expected three f32, file has %s", std::string(key),
                                       PrintGgufValue(*value, 60)));
  }
  for (size_t c = 0; c < 3; ++c) out[c] = static_cast<float>(value->Number(c));
  return absl::OkStatus();
}

absl::Status CheckProjector(const GgufHeader& header) {
  TANDEM_ASSIGN_OR_RETURN(const auto projector, header.String("clip.projector_type"));
  if (projector.value_or("") != "gemma3") {
    const GgufValue* value = header.Find("clip.projector_type");
    return FormatError(value == nullptr ? 0 : value->offset,
                       absl::StrFormat("clip.projector_type is %s; gemma3 is supported",
                                       projector.value_or("missing").substr(0, 40)));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto gelu, header.Bool("clip.use_gelu"));
  if (!gelu.value_or(true)) {
    return FormatError(header.Find("clip.use_gelu")->offset,
                       "clip.use_gelu is false; Gemma 3 uses GELU");
  }
  return absl::OkStatus();
}

}  // namespace

bool HasVisionConfig(const json& config) {
  const json* vision = config.is_object() ? JsonMember(config, "vision_config") : nullptr;
  return vision != nullptr && vision->is_object();
}

absl::StatusOr<VisionConfig> ReadVisionConfig(const json& config, const json& preprocessor) {
  if (!HasVisionConfig(config)) return absl::InvalidArgumentError("vision_config is missing");
  if (!preprocessor.is_object() && !preprocessor.is_null()) {
    return absl::InvalidArgumentError("the preprocessor's configuration is no object");
  }
  VisionConfig vision;
  TANDEM_RETURN_IF_ERROR(ReadEncoder(*JsonMember(config, "vision_config"), vision));
  TANDEM_RETURN_IF_ERROR(ReadCount(config, "mm_tokens_per_image", 256, vision.tokens_per_image));
  TANDEM_ASSIGN_OR_RETURN(const json* text, JsonObject(config, "text_config"));
  if (text == nullptr) return absl::InvalidArgumentError("text_config is missing");
  TANDEM_RETURN_IF_ERROR(ReadCount(*text, "hidden_size", 2304, vision.text_hidden_dim));
  if (preprocessor.is_object()) TANDEM_RETURN_IF_ERROR(ReadPixels(preprocessor, vision));
  TANDEM_RETURN_IF_ERROR(vision.Validate());
  return vision;
}

bool IsVisionGguf(const GgufHeader& header) {
  const GgufValue* architecture = header.Find("general.architecture");
  return architecture != nullptr && architecture->type == GgufType::kString &&
         architecture->text == "clip";
}

absl::StatusOr<VisionConfig> ReadVisionConfig(const GgufHeader& header) {
  if (!IsVisionGguf(header)) {
    return absl::InvalidArgumentError("no mmproj file: general.architecture is not clip");
  }
  TANDEM_RETURN_IF_ERROR(CheckProjector(header));
  VisionConfig vision;
  TANDEM_RETURN_IF_ERROR(RequireUnsigned(header, "clip.vision.image_size", vision.image_size));
  TANDEM_RETURN_IF_ERROR(RequireUnsigned(header, "clip.vision.patch_size", vision.patch_size));
  TANDEM_RETURN_IF_ERROR(
      RequireUnsigned(header, "clip.vision.embedding_length", vision.hidden_dim));
  TANDEM_RETURN_IF_ERROR(
      RequireUnsigned(header, "clip.vision.feed_forward_length", vision.ffn_dim));
  TANDEM_RETURN_IF_ERROR(RequireUnsigned(header, "clip.vision.block_count", vision.num_layers));
  TANDEM_RETURN_IF_ERROR(
      RequireUnsigned(header, "clip.vision.attention.head_count", vision.num_heads));
  TANDEM_RETURN_IF_ERROR(
      RequireUnsigned(header, "clip.vision.projection_dim", vision.text_hidden_dim));
  TANDEM_ASSIGN_OR_RETURN(const auto eps, header.Float("clip.vision.attention.layer_norm_epsilon"));
  vision.layer_norm_eps = eps.value_or(1e-6f);
  TANDEM_RETURN_IF_ERROR(ReadThree(header, "clip.vision.image_mean", vision.pixels.mean));
  TANDEM_RETURN_IF_ERROR(ReadThree(header, "clip.vision.image_std", vision.pixels.std));
  // The number of soft tokens follows from how many patches are averaged.
  TANDEM_ASSIGN_OR_RETURN(const auto scale,
                          header.Unsigned("clip.vision.projector.scale_factor", kMaxUint32));
  const auto pool = static_cast<uint32_t>(scale.value_or(kDefaultScaleFactor));
  if (vision.patch_size == 0 || pool == 0 || vision.patches_per_side() % pool != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("clip.vision.projector.scale_factor %d does not divide the %d / %d patches "
                        "of a side",
                        pool, vision.image_size, vision.patch_size));
  }
  const uint64_t tokens_per_side = vision.patches_per_side() / pool;
  vision.tokens_per_image =
      static_cast<uint32_t>(std::min<uint64_t>(tokens_per_side * tokens_per_side, kMaxInt32));
  TANDEM_RETURN_IF_ERROR(vision.Validate());
  return vision;
}

}  // namespace tandem::loader
