#include "services/gateway/openai/openai_options.h"
#include "services/common/base/client_text.h"

#include <charconv>
#include <limits>

#include "absl/strings/str_format.h"
#include "services/common/base/random_bits.h"
#include "services/gateway/api/api_error.h"
#include "services/gateway/api/penalty_window.h"
#include "services/gateway/http/api_keys.h"
#include "services/gateway/model/request_parser.h"
#include "services/gateway/sampling/sampler.h"

namespace tandem::gateway {
namespace {

void ReadLogitBias(JsonFields& fields, v1::SamplingParams& params) {
  const Json* biases = fields.Object("logit_bias");
  if (biases == nullptr) return;
  if (biases->size() > kMaxLogitBiases) {
    fields.Fail("logit_bias", "invalid_value",
                absl::StrFormat("Invalid 'logit_bias': %d entries, at most %d.", biases->size(),
                                kMaxLogitBiases));
    return;
  }
  JsonFields entries(*biases, fields.error(), fields.PathOf("logit_bias."));
  for (const auto& [name, value] : biases->items()) {
    uint32_t token = 0;
    const char* end = name.data() + name.size();
    const auto [parsed_to, error] = std::from_chars(name.data(), end, token);
    if (error != std::errc() || parsed_to != end) {
      fields.Fail(
          "logit_bias", "invalid_value",
          absl::StrFormat("Invalid 'logit_bias': \"%s\" is not a token id.", ClientText(name, 40)));
      return;
    }
    const auto bias = entries.Number(name, -100.0, 100.0);
    if (!bias.has_value()) {
      if (value.is_null()) entries.WrongType(name, "a number");
      return;
    }
    (*params.mutable_logit_bias())[token] = static_cast<float>(*bias);
  }
}

void ReadRepetitionPenalty(JsonFields& fields, v1::SamplingParams& params) {
  const auto plain = fields.Number("repetition_penalty", 0.01, 100.0);
  const auto llama = fields.Number("repeat_penalty", 0.01, 100.0);
  if (plain.has_value() && llama.has_value() && *plain != *llama) {
    fields.Fail("repeat_penalty", "invalid_value",
                "Setting 'repetition_penalty' and 'repeat_penalty' to different values is not "
                "supported.");
  }
  const auto penalty = plain.has_value() ? plain : llama;
  if (penalty.has_value()) params.set_repetition_penalty(static_cast<float>(*penalty));
  ReadPenaltyWindow(fields, /*by_default=*/!plain.has_value() && llama.has_value(), params);
}

}  // namespace

v1::SamplingParams ReadSampling(JsonFields& fields) {
  v1::SamplingParams params;
  if (const auto value = fields.Number("temperature", 0.0, 2.0)) {
    params.set_temperature(static_cast<float>(*value));
  }
  if (const auto value = fields.Number("top_p", 0.0, 1.0)) {
    // 0 keeps the best token alone, as the smallest p above 0 does.
    constexpr float kLeast = std::numeric_limits<float>::min();
    params.set_top_p(std::max(static_cast<float>(*value), kLeast));
  }
  if (const auto value = fields.Number("min_p", 0.0, 1.0)) {
    params.set_min_p(static_cast<float>(*value));
  }
  // Other servers also accept -1 for "all".
  if (const auto value = fields.Integer("top_k", -1, std::numeric_limits<int32_t>::max())) {
    params.set_top_k(*value < 0 ? 0 : static_cast<uint32_t>(*value));
  }
  ReadRepetitionPenalty(fields, params);
  if (const auto value = fields.Number("presence_penalty", -2.0, 2.0)) {
    params.set_presence_penalty(static_cast<float>(*value));
  }
  if (const auto value = fields.Number("frequency_penalty", -2.0, 2.0)) {
    params.set_frequency_penalty(static_cast<float>(*value));
  }
  // -1: a new seed for each request, as in llama.cpp and vLLM.
  const auto seed = fields.Seed("seed");
  const bool given = seed.has_value() && *seed != std::numeric_limits<uint64_t>::max();
  params.set_seed(given ? *seed : RandomBits() >> 11);
  ReadLogitBias(fields, params);
  return params;
}

std::optional<uint32_t> ReadTokenLimit(JsonFields& fields, std::string_view name, int64_t least) {
  const Json* value = fields.Find(name);
  if (value != nullptr && *value == -1) return kNoTokenLimit;
  const auto limit = fields.Integer(name, least, kNoTokenLimit);
  if (!limit.has_value()) return std::nullopt;
  return static_cast<uint32_t>(*limit);
}

void IgnoredMembers::Note(const JsonFields& fields, std::string_view name) {
  const Json* value = fields.Find(name);
  if (value != nullptr && !SaysNothing(*value) && *value != "none") {
    names_.push_back(fields.PathOf(name));
  }
}

void ReadStops(JsonFields& fields, v1::GenerationLimits& limits) {
  for (std::string& stop : fields.Strings("stop", kMaxStops)) {
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      fields.Fail("stop", "invalid_value",
                  absl::StrFormat("Invalid 'stop': a text of %d bytes, it must have 1 to %d.",
                                  stop.size(), kMaxStopBytes));
      return;
    }
    limits.add_stop(std::move(stop));
  }
  limits.set_ignore_eos(fields.Bool("ignore_eos").value_or(false));
  if (const auto cache = fields.Bool("cache_prompt")) limits.set_cache_prompt(*cache);
  ReadVllmLimits(fields, limits);
}

void ReadVllmLimits(JsonFields& fields, v1::GenerationLimits& limits) {
  if (const auto priority = fields.Integer("priority", -kMaxPriority, kMaxPriority)) {
    limits.set_priority(static_cast<int32_t>(*priority));
  }
  auto salt = fields.String("cache_salt");
  if (!salt.has_value()) return;
  if (salt->size() > kMaxCacheSaltBytes) {
    return fields.Fail("cache_salt", "invalid_value",
                       absl::StrFormat("Invalid 'cache_salt': a text of %d bytes, %d at most.",
                                       salt->size(), kMaxCacheSaltBytes));
  }
  limits.set_cache_salt(*std::move(salt));
}

StreamOptions ReadStreamOptions(JsonFields& fields) {
  StreamOptions options;
  options.stream = fields.Bool("stream").value_or(false);
  const Json* object = fields.Object("stream_options");
  if (object == nullptr) return options;
  if (!options.stream) {
    fields.Fail("stream_options", "invalid_value",
                "Invalid 'stream_options': it is only allowed when 'stream' is true.");
    return options;
  }
  JsonFields inner(*object, fields.error(), fields.PathOf("stream_options."));
  options.include_usage = inner.Bool("include_usage").value_or(false);
  return options;
}

void CheckModel(JsonFields& fields, const ServedModel& model) {
  const std::string name = fields.String("model").value_or("");
  const absl::Status status = model.CheckName(name);
  if (status.ok() || !fields.ok()) return;
  fields.error() = status;
}

std::vector<EngineRequest> MakeChoices(const EngineRequest& request, int64_t num_choices) {
  std::vector<EngineRequest> choices;
  for (int64_t i = 0; i < num_choices; ++i) {
    choices.push_back(request);
    choices.back().sampling.seed += static_cast<uint64_t>(i);
  }
  return choices;
}

absl::Status NamePrompt(const absl::Status& status, std::string_view param) {
  constexpr char kTooLong[] = "context_length_exceeded";
  const std::string message(status.message());
  if (message.starts_with(kTooLong)) return ParamError(param, kTooLong, message);
  if (message.starts_with("tokens") || message.starts_with("prompt")) {
    return ParamError(param, "invalid_value", message);
  }
  return status;
}

std::string MakeId(const std::string& prefix) {
  return absl::StrFormat("%s%016x%08x", prefix, RandomBits(), RandomBits() >> 32);
}

}  // namespace tandem::gateway
