// Members that chat completions, completions and responses share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/gateway/api/json_fields.h"
#include "services/gateway/engine/request_run.h"
#include "services/gateway/model/served_model.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

inline constexpr int64_t kMaxChoices = 128;
inline constexpr char kTextOnly[] = "this server takes text and images alone.";

// temperature, top_p, seed, the penalties and logit_bias; also top_k, min_p, repetition_penalty (or
// llama.cpp's repeat_penalty) and repeat_last_n, which OpenAI lacks, under other servers' names.
// Without a seed, or with -1, draws one of at most 53 bits, so that JSON can report it exactly.
v1::SamplingParams ReadSampling(JsonFields& fields);

// The member `name`, the most tokens to generate: `least` or more.  -1, which clients of llama.cpp
// and LM Studio send, is kNoTokenLimit.
std::optional<uint32_t> ReadTokenLimit(JsonFields& fields, std::string_view name, int64_t least);

// Members that are accepted without effect.  If a request sets one, the answer lists it in
// "tandem.ignored".
class IgnoredMembers {
 public:
  // `fields`' member `name`, unless it is absent, null, false, empty or "none".
  void Note(const JsonFields& fields, std::string_view name);
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

// "stop", a string or a list, ignore_eos, cache_prompt, cache_salt and priority.
void ReadStops(JsonFields& fields, v1::GenerationLimits& limits);
// vLLM's "cache_salt" and "priority".
void ReadVllmLimits(JsonFields& fields, v1::GenerationLimits& limits);

// stream and stream_options.include_usage.
struct StreamOptions {
  bool stream = false;
  bool include_usage = false;
};
StreamOptions ReadStreamOptions(JsonFields& fields);

// `fields`' model, checked against `model`'s name.  NOT_FOUND goes to the fields' error.
void CheckModel(JsonFields& fields, const ServedModel& model);

// The request `num_choices` times; choice i has the seed of the request plus i.
std::vector<EngineRequest> MakeChoices(const EngineRequest& request, int64_t num_choices);

// Names the prompt `param` ("messages", "prompt", "input") in an error of ParseGenerate or
// ParseChat. Errors about other members stay as they are.
absl::Status NamePrompt(const absl::Status& status, std::string_view param);

// "chatcmpl-" and 24 random hexadecimal digits.
std::string MakeId(const std::string& prefix);

}  // namespace tandem::gateway
