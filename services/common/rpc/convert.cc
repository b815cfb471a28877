#include "services/common/rpc/convert.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem {

namespace {

loader::v1::VisionConfig VisionToProto(const VisionConfig& config) {
  loader::v1::VisionConfig proto;
  proto.set_image_size(config.image_size);
  proto.set_patch_size(config.patch_size);
  proto.set_num_layers(config.num_layers);
  proto.set_hidden_dim(config.hidden_dim);
  proto.set_ffn_dim(config.ffn_dim);
  proto.set_num_heads(config.num_heads);
  proto.set_layer_norm_eps(config.layer_norm_eps);
  proto.set_tokens_per_image(config.tokens_per_image);
  proto.set_text_hidden_dim(config.text_hidden_dim);
  proto.set_pixel_rescale(config.pixels.rescale);
  for (const float mean : config.pixels.mean) proto.add_pixel_mean(mean);
  for (const float std : config.pixels.std) proto.add_pixel_std(std);
  return proto;
}

// Checked with the rest of the model's config.
absl::StatusOr<VisionConfig> VisionFromProto(const loader::v1::VisionConfig& proto) {
  VisionConfig config;
  config.image_size = proto.image_size();
  config.patch_size = proto.patch_size();
  config.num_layers = proto.num_layers();
  config.hidden_dim = proto.hidden_dim();
  config.ffn_dim = proto.ffn_dim();
  config.num_heads = proto.num_heads();
  config.layer_norm_eps = proto.layer_norm_eps();
  config.tokens_per_image = proto.tokens_per_image();
  config.text_hidden_dim = proto.text_hidden_dim();
  config.pixels.rescale = proto.pixel_rescale();
  if (proto.pixel_mean_size() != 3 || proto.pixel_std_size() != 3) {
    return absl::InvalidArgumentError(
        absl::StrFormat("vision pixel_mean has %d numbers and pixel_std %d, must be 3 each",
                        proto.pixel_mean_size(), proto.pixel_std_size()));
  }
  std::copy(proto.pixel_mean().begin(), proto.pixel_mean().end(), config.pixels.mean.begin());
  std::copy(proto.pixel_std().begin(), proto.pixel_std().end(), config.pixels.std.begin());
  return config;
}

}  // namespace

loader::v1::ModelConfig ToProto(const ModelConfig& config) {
  loader::v1::ModelConfig proto;
  proto.set_architecture(config.architecture);
  proto.set_num_layers(config.num_layers);
  proto.set_hidden_dim(config.hidden_dim);
  proto.set_ffn_dim(config.ffn_dim);
  proto.set_num_heads(config.num_heads);
  proto.set_num_kv_heads(config.num_kv_heads);
  proto.set_head_dim(config.head_dim);
  proto.set_vocab_size(config.vocab_size);
  proto.set_context_len(config.context_len);
  proto.set_sliding_window(config.sliding_window);
  for (const bool is_global : config.layer_is_global) proto.add_layer_is_global(is_global);
  proto.set_rope_theta_global(config.rope_theta_global);
  proto.set_rope_theta_local(config.rope_theta_local);
  proto.set_rope_scale_global(config.rope_scale_global);
  proto.set_attention_scale(config.attention_scale);
  proto.set_embedding_scale(config.embedding_scale);
  proto.set_rms_norm_eps(config.rms_norm_eps);
  proto.set_bos_token_id(config.bos_token_id);
  for (const int32_t id : config.stop_token_ids) proto.add_stop_token_ids(id);
  if (config.vision.has_value()) *proto.mutable_vision() = VisionToProto(*config.vision);
  return proto;
}

loader::v1::PackedTensor ToProto(const PackedTensor& tensor) {
  loader::v1::PackedTensor proto;
  proto.set_role(static_cast<uint32_t>(tensor.role));
  proto.set_layer_idx(tensor.layer_idx);
  proto.set_rows(tensor.shape.rows);
  proto.set_cols(tensor.shape.cols);
  for (const Shard& shard : tensor.shards) {
    loader::v1::Shard* out = proto.add_shards();
    out->set_first_row(shard.first_row);
    out->set_num_rows(shard.num_rows);
    out->set_region(shard.region);
    out->set_offset(shard.offset);
    out->set_dtype(static_cast<uint32_t>(shard.dtype));
  }
  return proto;
}

absl::StatusOr<ModelConfig> ConfigFromProto(const loader::v1::ModelConfig& proto) {
  ModelConfig config;
  config.architecture = proto.architecture();
  config.num_layers = proto.num_layers();
  config.hidden_dim = proto.hidden_dim();
  config.ffn_dim = proto.ffn_dim();
  config.num_heads = proto.num_heads();
  config.num_kv_heads = proto.num_kv_heads();
  config.head_dim = proto.head_dim();
  config.vocab_size = proto.vocab_size();
  config.context_len = proto.context_len();
  config.sliding_window = proto.sliding_window();
  config.layer_is_global.assign(proto.layer_is_global().begin(), proto.layer_is_global().end());
  config.rope_theta_global = proto.rope_theta_global();
  config.rope_theta_local = proto.rope_theta_local();
  config.rope_scale_global = proto.rope_scale_global();
  config.attention_scale = proto.attention_scale();
  config.embedding_scale = proto.embedding_scale();
  config.rms_norm_eps = proto.rms_norm_eps();
  config.bos_token_id = proto.bos_token_id();
  config.stop_token_ids.assign(proto.stop_token_ids().begin(), proto.stop_token_ids().end());
  if (proto.has_vision()) {
    TANDEM_ASSIGN_OR_RETURN(config.vision, VisionFromProto(proto.vision()));
  }
  TANDEM_RETURN_IF_ERROR(config.Validate());
  return config;
}

absl::StatusOr<std::vector<PackedTensor>> TensorsFromProto(const loader::v1::Model& model,
                                                           const ModelConfig& config) {
  const std::vector<uint64_t> region_bytes(model.region_bytes().begin(),
                                           model.region_bytes().end());
  std::vector<PackedTensor> tensors;
  tensors.reserve(static_cast<size_t>(model.tensors_size()));
  for (const loader::v1::PackedTensor& proto : model.tensors()) {
    if (proto.role() >= kNumWeightRoles) {
      return absl::InvalidArgumentError(
          absl::StrFormat("manifest of '%s': tensor %d has role %d of %d", model.name(),
                          tensors.size(), proto.role(), kNumWeightRoles));
    }
    PackedTensor tensor;
    tensor.role = static_cast<WeightRole>(proto.role());
    tensor.layer_idx = proto.layer_idx();
    tensor.shape = {proto.rows(), proto.cols()};
    for (const loader::v1::Shard& shard : proto.shards()) {
      tensor.shards.push_back({shard.first_row(), shard.num_rows(), shard.region(), shard.offset(),
                               static_cast<DType>(shard.dtype())});
    }
    TANDEM_RETURN_IF_ERROR(ValidatePackedTensor(tensor, config, region_bytes));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace tandem
