#include "tools/tandem/commands/model_json.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

Json ConfigAsJson(const ModelConfig& config) {
  Json global = Json::array();
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    if (config.is_global(layer)) global.push_back(layer);
  }
  return {{"architecture", config.architecture},
          {"num_layers", config.num_layers},
          {"global_layers", global},
          {"hidden_dim", config.hidden_dim},
          {"ffn_dim", config.ffn_dim},
          {"num_heads", config.num_heads},
          {"num_kv_heads", config.num_kv_heads},
          {"head_dim", config.head_dim},
          {"vocab_size", config.vocab_size},
          {"context_len", config.context_len},
          {"sliding_window", config.sliding_window},
          {"rope_theta_global", config.rope_theta_global},
          {"rope_scale_global", config.rope_scale_global},
          {"rope_theta_local", config.rope_theta_local},
          {"attention_scale", config.attention_scale},
          {"embedding_scale", config.embedding_scale},
          {"rms_norm_eps", config.rms_norm_eps},
          {"bos_token_id", config.bos_token_id},
          {"stop_token_ids", config.stop_token_ids}};
}

Json ConfigAsJson(const VisionConfig& config) {
  return {{"image_size", config.image_size},
          {"patch_size", config.patch_size},
          {"num_layers", config.num_layers},
          {"hidden_dim", config.hidden_dim},
          {"ffn_dim", config.ffn_dim},
          {"num_heads", config.num_heads},
          {"tokens_per_image", config.tokens_per_image},
          {"text_hidden_dim", config.text_hidden_dim},
          {"layer_norm_eps", config.layer_norm_eps},
          {"pixel_mean", config.pixels.mean},
          {"pixel_std", config.pixels.std},
          {"pixel_rescale", config.pixels.rescale}};
}

Json SamplingAsJson(const loader::SamplingDefaults& sampling) {
  Json json = Json::object();
  if (sampling.top_k) json["top_k"] = *sampling.top_k;
  if (sampling.top_p) json["top_p"] = *sampling.top_p;
  if (sampling.temperature) json["temperature"] = *sampling.temperature;
  return json;
}

}  // namespace

nlohmann::ordered_json ModelSourceAsJson(const loader::ModelSource& source) {
  Json metadata = Json::object();
  for (const auto& [key, value] : source.metadata()) metadata[key] = value;
  Json tensors = Json::array(), skipped = Json::array();
  uint64_t num_weights = 0, num_bytes = 0;
  for (const loader::SourceTensor& tensor : source.tensors()) {
    tensors.push_back({{"name", tensor.name},
                       {"type", std::string(Traits(tensor.dtype).name)},
                       {"rows", tensor.shape.rows},
                       {"columns", tensor.shape.cols},
                       {"file", tensor.file},
                       {"offset", tensor.file_offset},
                       {"bytes", tensor.num_bytes}});
    num_weights += tensor.shape.rows * tensor.shape.cols;
    num_bytes += tensor.num_bytes;
  }
  for (const loader::SkippedTensor& tensor : source.skipped()) {
    skipped.push_back({{"name", tensor.name},
                       {"type", tensor.dtype},
                       {"shape", tensor.shape},
                       {"bytes", tensor.num_bytes}});
  }
  return {{"format", std::string(source.format())},
          {"content_id", source.content_id()},
          {"config", ConfigAsJson(source.config())},
          {"sampling", SamplingAsJson(source.sampling_defaults())},
          {"chat_template", source.chat_template()},
          {"weights", num_weights},
          {"weight_bytes", num_bytes},
          {"metadata", metadata},
          {"tensors", tensors},
          {"skipped_tensors", skipped}};
}

nlohmann::ordered_json VisionSourceAsJson(const loader::VisionSource& source) {
  Json metadata = Json::object();
  for (const auto& [key, value] : source.metadata) metadata[key] = value;
  Json tensors = Json::array();
  for (const loader::VisionTensor& tensor : source.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"type", std::string(Traits(tensor.dtype).name)},
                       {"shape", tensor.file_shape},
                       {"file", tensor.file},
                       {"offset", tensor.file_offset},
                       {"bytes", tensor.num_bytes}});
  }
  return {{"path", source.path},
          {"format", source.format},
          {"content_id", source.content_id},
          {"config", ConfigAsJson(source.config)},
          {"metadata", metadata},
          {"tensors", tensors}};
}

}  // namespace tandem
