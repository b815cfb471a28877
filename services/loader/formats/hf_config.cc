#include "services/loader/formats/hf_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/loader/formats/json.h"

namespace tandem::loader {
namespace {

using nlohmann::json;

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

// A count, or Gemma3TextConfig's default when absent.
absl::Status ReadCount(const json& config, std::string_view name, uint32_t default_value,
                       uint32_t& out) {
  TANDEM_ASSIGN_OR_RETURN(const auto value, JsonInteger(config, name, 0, kMaxInt32));
  out = value.has_value() ? static_cast<uint32_t>(*value) : default_value;
  return absl::OkStatus();
}

absl::Status ReadFloat(const json& config, std::string_view name, float default_value, float& out) {
  TANDEM_ASSIGN_OR_RETURN(const auto value, JsonFloat(config, name));
  out = value.value_or(default_value);
  return absl::OkStatus();
}

absl::Status ReadDims(const json& config, ModelConfig& model) {
  TANDEM_RETURN_IF_ERROR(ReadCount(config, "num_hidden_layers", 26, model.num_layers));
  TANDEM_RETURN_IF_ERROR(ReadCount(config, "hidden_size", 2304, model.hidden_dim));
  TANDEM_RETURN_IF_ERROR(ReadCount(config, "intermediate_size", 9216, model.ffn_dim));
  TANDEM_RETURN_IF_ERROR(ReadCount(config, "num_attention_heads", 8, model.num_heads));
  TANDEM_RETURN_IF_ERROR(ReadCount(config, "num_key_value_heads", 4, model.num_kv_heads));
  TANDEM_RETURN_IF_ERROR(ReadCount(config, "head_dim", 256, model.head_dim));
  TANDEM_RETURN_IF_ERROR(ReadCount(config, "vocab_size", 262208, model.vocab_size));
  TANDEM_RETURN_IF_ERROR(ReadCount(config, "max_position_embeddings", 131072, model.context_len));
  TANDEM_RETURN_IF_ERROR(ReadCount(config, "sliding_window", 4096, model.sliding_window));
  TANDEM_RETURN_IF_ERROR(ReadFloat(config, "rms_norm_eps", 1e-6f, model.rms_norm_eps));
  float query_scalar = 0;
  TANDEM_RETURN_IF_ERROR(ReadFloat(config, "query_pre_attn_scalar", 256.0f, query_scalar));
  model.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(query_scalar)));
  model.embedding_scale = std::sqrt(static_cast<float>(model.hidden_dim));
  if (model.num_layers > 1024) {
    return absl::InvalidArgumentError(
        absl::StrFormat("num_hidden_layers is %d, at most 1024 are accepted", model.num_layers));
  }
  return absl::OkStatus();
}

// Settings that Gemma 3 never has and that would change what the model computes.
absl::Status RefuseUnsupported(const json& config) {
  for (const std::string_view name : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    TANDEM_ASSIGN_OR_RETURN(const auto cap, JsonFloat(config, name));
    if (cap.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s is %g: soft capping is no part of Gemma 3", std::string(name), *cap));
    }
  }
  for (const std::string_view name : {"attention_bias", "use_bidirectional_attention"}) {
    TANDEM_ASSIGN_OR_RETURN(const auto set, JsonBool(config, name));
    if (set.value_or(false)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s is true, which is not supported", std::string(name)));
    }
  }
  TANDEM_ASSIGN_OR_RETURN(auto activation, JsonString(config, "hidden_activation"));
  if (!activation.has_value()) {
    TANDEM_ASSIGN_OR_RETURN(activation, JsonString(config, "hidden_act"));
  }
  if (activation.value_or("gelu_pytorch_tanh") != "gelu_pytorch_tanh") {
    return absl::InvalidArgumentError(absl::StrFormat(
        "hidden_activation is %s; gelu_pytorch_tanh is supported", activation->substr(0, 40)));
  }
  return absl::OkStatus();
}

absl::Status ReadLayerTypes(const json& config, ModelConfig& model) {
  const json* types = JsonMember(config, "layer_types");
  if (types == nullptr) {
    uint32_t pattern = 0;
    TANDEM_RETURN_IF_ERROR(ReadCount(config, "_sliding_window_pattern", 6, pattern));
    TANDEM_RETURN_IF_ERROR(ReadCount(config, "sliding_window_pattern", pattern, pattern));
    model.layer_is_global = EverySixthGlobal(model.num_layers, pattern);
    return absl::OkStatus();
  }
  if (!types->is_array() || types->size() != model.num_layers) {
    return absl::InvalidArgumentError(absl::StrFormat("layer_types has %d entries for %d layers",
                                                      types->size(), model.num_layers));
  }
  for (const json& type : *types) {
    const std::string name = type.is_string() ? type.get<std::string>() : PrintJson(type, 40);
    if (name != "full_attention" && name != "sliding_attention") {
      return absl::InvalidArgumentError(
          absl::StrFormat("layer_types has \"%s\"; full_attention and sliding_attention are "
                          "supported",
                          name.substr(0, 40)));
    }
    model.layer_is_global.push_back(name == "full_attention");
  }
  return absl::OkStatus();
}

// {"rope_type": "linear", "factor": 8.0}; older files say "type".
absl::Status ReadRopeScale(const json& settings, float& scale) {
  TANDEM_ASSIGN_OR_RETURN(auto type, JsonString(settings, "rope_type"));
  if (!type.has_value()) {
    TANDEM_ASSIGN_OR_RETURN(type, JsonString(settings, "type"));
  }
  if (type.value_or("default") == "default") return absl::OkStatus();
  if (*type != "linear") {
    return absl::InvalidArgumentError(
        absl::StrFormat("rope_type is %s; linear and default are supported", type->substr(0, 40)));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto factor, JsonFloat(settings, "factor"));
  if (!factor.has_value()) {
    return absl::InvalidArgumentError("rope_type is linear, but factor is missing");
  }
  scale = *factor;
  return absl::OkStatus();
}

absl::Status ReadRope(const json& config, ModelConfig& model) {
  TANDEM_RETURN_IF_ERROR(ReadFloat(config, "rope_theta", 1e6f, model.rope_theta_global));
  TANDEM_RETURN_IF_ERROR(ReadFloat(config, "rope_local_base_freq", 1e4f, model.rope_theta_local));
  TANDEM_ASSIGN_OR_RETURN(const json* scaling, JsonObject(config, "rope_scaling"));
  if (scaling != nullptr) {
    TANDEM_RETURN_IF_ERROR(ReadRopeScale(*scaling, model.rope_scale_global));
  }
  TANDEM_ASSIGN_OR_RETURN(const json* parameters, JsonObject(config, "rope_parameters"));
  if (parameters == nullptr) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const json* global, JsonObject(*parameters, "full_attention"));
  TANDEM_ASSIGN_OR_RETURN(const json* local, JsonObject(*parameters, "sliding_attention"));
  if (global == nullptr && local == nullptr) global = parameters;  // one setting, not by layer type
  if (global != nullptr) {
    TANDEM_RETURN_IF_ERROR(
        ReadFloat(*global, "rope_theta", model.rope_theta_global, model.rope_theta_global));
    TANDEM_RETURN_IF_ERROR(ReadRopeScale(*global, model.rope_scale_global));
  }
  if (local != nullptr) {
    float local_scale = 1.0f;
    TANDEM_RETURN_IF_ERROR(
        ReadFloat(*local, "rope_theta", model.rope_theta_local, model.rope_theta_local));
    TANDEM_RETURN_IF_ERROR(ReadRopeScale(*local, local_scale));
    if (local_scale != 1.0f) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "rope_parameters.sliding_attention.factor is %g; only global layers may be scaled",
          local_scale));
    }
  }
  return absl::OkStatus();
}

// An id or a list of ids.
absl::Status ReadTokenIds(const json& object, std::string_view name, uint32_t vocab_size,
                          std::vector<int32_t>& out) {
  const json* value = JsonMember(object, name);
  if (value == nullptr) return absl::OkStatus();
  const json list = value->is_array() ? *value : json::array({*value});
  if (list.size() > 1024) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s has %d entries, at most 1024 are accepted", std::string(name), list.size()));
  }
  for (const json& entry : list) {
    TANDEM_ASSIGN_OR_RETURN(
        const auto id, JsonInteger({{std::string(name), entry}}, name, 0, int64_t{vocab_size} - 1));
    if (id.has_value() && std::find(out.begin(), out.end(), *id) == out.end()) {
      out.push_back(static_cast<int32_t>(*id));
    }
  }
  return absl::OkStatus();
}

// Looks in the generation config first, then in the text part, then in the whole configuration.
absl::Status ReadSpecialTokens(const json& config, const json& text, const json& generation,
                               ModelConfig& model) {
  model.bos_token_id = 2;
  for (const json* object : {&generation, &text, &config}) {
    TANDEM_ASSIGN_OR_RETURN(const auto bos,
                            JsonInteger(*object, "bos_token_id", 0, int64_t{model.vocab_size} - 1));
    if (!bos.has_value()) continue;
    model.bos_token_id = static_cast<int32_t>(*bos);
    break;
  }
  for (const json* object : {&generation, &text, &config}) {
    TANDEM_RETURN_IF_ERROR(
        ReadTokenIds(*object, "eos_token_id", model.vocab_size, model.stop_token_ids));
    if (!model.stop_token_ids.empty()) return absl::OkStatus();
  }
  model.stop_token_ids = {1};
  return absl::OkStatus();
}

absl::Status ReadSampling(const json& generation, SamplingDefaults& sampling) {
  TANDEM_ASSIGN_OR_RETURN(const auto top_k, JsonInteger(generation, "top_k", 0, kMaxInt32));
  if (top_k.has_value()) sampling.top_k = static_cast<uint32_t>(*top_k);
  TANDEM_ASSIGN_OR_RETURN(sampling.top_p, JsonFloat(generation, "top_p"));
  TANDEM_ASSIGN_OR_RETURN(sampling.temperature, JsonFloat(generation, "temperature"));
  return absl::OkStatus();
}

absl::StatusOr<const json*> FindTextConfig(const json& config) {
  TANDEM_ASSIGN_OR_RETURN(const auto type, JsonString(config, "model_type"));
  if (!type.has_value()) return absl::InvalidArgumentError("model_type is missing");
  if (*type == "gemma3_text") return &config;
  if (*type != "gemma3") {
    return absl::InvalidArgumentError(absl::StrFormat(
        "model_type %s is not supported; gemma3_text and gemma3 are", type->substr(0, 40)));
  }
  TANDEM_ASSIGN_OR_RETURN(const json* text, JsonObject(config, "text_config"));
  if (text == nullptr) return absl::InvalidArgumentError("text_config is missing");
  TANDEM_ASSIGN_OR_RETURN(const auto text_type, JsonString(*text, "model_type"));
  if (text_type.value_or("gemma3_text") != "gemma3_text") {
    return absl::InvalidArgumentError(absl::StrFormat(
        "text_config.model_type %s is not supported; gemma3_text is", text_type->substr(0, 40)));
  }
  return text;
}

}  // namespace

absl::StatusOr<ReleaseConfig> ReadReleaseConfig(const json& config, const json& generation_config) {
  if (!config.is_object()) return absl::InvalidArgumentError("the configuration is no object");
  if (!generation_config.is_object() && !generation_config.is_null()) {
    return absl::InvalidArgumentError("the generation configuration is no object");
  }
  ReleaseConfig release;
  TANDEM_ASSIGN_OR_RETURN(const json* text, FindTextConfig(config));
  TANDEM_RETURN_IF_ERROR(RefuseUnsupported(*text));
  TANDEM_RETURN_IF_ERROR(ReadDims(*text, release.model));
  TANDEM_RETURN_IF_ERROR(ReadLayerTypes(*text, release.model));
  TANDEM_RETURN_IF_ERROR(ReadRope(*text, release.model));
  TANDEM_RETURN_IF_ERROR(ReadSpecialTokens(config, *text, generation_config, release.model));
  TANDEM_RETURN_IF_ERROR(ReadSampling(generation_config, release.sampling));
  for (const json* object : {&config, text}) {
    TANDEM_ASSIGN_OR_RETURN(const auto tied, JsonBool(*object, "tie_word_embeddings"));
    release.tied = tied.value_or(release.tied);
  }
  TANDEM_RETURN_IF_ERROR(release.model.Validate());
  return release;
}

}  // namespace tandem::loader
