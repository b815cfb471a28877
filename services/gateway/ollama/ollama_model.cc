#include "services/gateway/ollama/ollama_model.h"

#include <string>
#include <utility>

#include "absl/strings/str_format.h"

namespace tandem::gateway {
namespace {

// "999.89M", "27.0B": as Ollama writes them.
std::string ShortCount(uint64_t count) {
  if (count >= 1000000000) return absl::StrFormat("%.1fB", static_cast<double>(count) * 1e-9);
  return absl::StrFormat("%.2fM", static_cast<double>(count) * 1e-6);
}

std::string Rfc3339(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
}

Json Details(const ServedModel& model) {
  const std::string& family = model.config().architecture;
  const std::string& quantization = model.info().quantization();
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", family},
          {"families", Json::array({family})},
          {"parameter_size", ShortCount(CountParameters(model.config()))},
          {"quantization_level", quantization.empty() ? "unknown" : quantization}};
}

// A name as Ollama writes it: with a tag.
Json Named(const std::string& listed) {
  const bool tagged = listed.find(':') != std::string::npos;
  const std::string name = tagged ? listed : listed + ":latest";
  return {{"name", name}, {"model", name}};
}

Json Capabilities(const ServedModel& model) {
  Json capabilities = Json::array({"completion", "tools"});
  if (model.pictures() != nullptr) capabilities.push_back("vision");
  return capabilities;
}

}  // namespace

uint64_t CountParameters(const ModelConfig& config) {
  const uint64_t hidden = config.hidden_dim;
  const uint64_t attention = hidden * config.qkv_dim() + uint64_t{config.q_dim()} * hidden;
  const uint64_t norms = 4 * hidden + 2 * uint64_t{config.head_dim};
  const uint64_t layer = attention + 3 * hidden * config.ffn_dim + norms;
  return config.vocab_size * hidden + config.num_layers * layer + hidden;
}

Json OllamaTags(const ServedModel& model, absl::Time started) {
  Json tags = Json::array();
  for (const std::string& name : model.names().listed()) {
    Json tag = Named(name);
    tag["modified_at"] = Rfc3339(started);
    tag["size"] = model.info().weight_bytes();
    tag["digest"] = model.info().model_id();
    tag["details"] = Details(model);
    tags.push_back(std::move(tag));
  }
  return tags;
}

Json OllamaProcess(const ServedModel& model, absl::Time started) {
  Json process = Named(model.info().name());
  process["size"] = model.info().weight_bytes();
  process["digest"] = model.info().model_id();
  process["details"] = Details(model);
  // The model stays loaded as long as the server runs.
  process["expires_at"] = Rfc3339(started + absl::Hours(24 * 365 * 100));
  process["size_vram"] = model.info().weight_bytes();
  process["context_length"] = model.info().context_len();
  return process;
}

Json OllamaShow(const ServedModel& model, absl::Time started) {
  const ModelConfig& config = model.config();
  const std::string& family = config.architecture;
  const SamplingParams& defaults = model.sampling_defaults();
  return {{"modelfile", absl::StrFormat("FROM %s\n", model.info().name())},
          {"parameters", absl::StrFormat("temperature %g\ntop_k %d\ntop_p %g", defaults.temperature,
                                         defaults.top_k, defaults.top_p)},
          {"template",
           "<start_of_turn>user\n{{ if .System }}{{ .System }}\n\n{{ end }}{{ .Prompt }}"
           "<end_of_turn>\n<start_of_turn>model\n{{ .Response }}<end_of_turn>\n"},
          {"details", Details(model)},
          {"model_info",
           {{"general.architecture", family},
            {"general.parameter_count", CountParameters(config)},
            {family + ".context_length", model.info().context_len()},
            {family + ".embedding_length", config.hidden_dim},
            {family + ".block_count", config.num_layers},
            {family + ".feed_forward_length", config.ffn_dim},
            {family + ".attention.head_count", config.num_heads},
            {family + ".attention.head_count_kv", config.num_kv_heads},
            {family + ".attention.key_length", config.head_dim},
            {family + ".attention.sliding_window", config.sliding_window}}},
          {"capabilities", Capabilities(model)},
          {"modified_at", Rfc3339(started)}};
}

}  // namespace tandem::gateway
