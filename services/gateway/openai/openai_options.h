// What chat completions, completions and responses have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/gateway/api/json_fields.h"
#include "services/gateway/engine/request_run.h"
#include "services/gateway/service/served_model.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

inline constexpr int64_t kMaxChoices = 128;
inline constexpr char kNoTools[] = "this server does not call tools.";
inline constexpr char kTextOnly[] = "this server does not take anything but text.";

// temperature, top_p, seed and, where this API has them, the penalties and logit_bias; beside
// OpenAI's own top_k, min_p, repetition_penalty (or llama.cpp's repeat_penalty) and repeat_last_n
// under the names other servers give them.  Where there is no seed, or -1, one is drawn, of at most
// 53 bits, so that it can be reported exactly.
v1::SamplingParams ReadSampling(JsonFields& fields);

// The most tokens to generate, as `name` says: at least `least`, or -1 for no limit, which clients
// of llama.cpp and LM Studio send (kNoTokenLimit then).
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

// "stop", a string or a list, ignore_eos and cache_prompt.
void ReadStops(JsonFields& fields, v1::GenerationLimits& limits);

// stream and stream_options.include_usage.
struct StreamOptions {
  bool stream = false;
  bool include_usage = false;
};
StreamOptions ReadStreamOptions(JsonFields& fields);

// `fields`' model, checked against `model`'s name.  NOT_FOUND goes to the fields' error.
void CheckModel(JsonFields& fields, const ServedModel& model);

// The same request `num_choices` times, each with a seed of its own, counting up from its seed.
std::vector<EngineRequest> MakeChoices(const EngineRequest& request, int64_t num_choices);

// What ParseGenerate and ParseChat refuse: if it is the prompt, under its name `param` ("messages",
// "prompt", "input").
absl::Status NamePrompt(const absl::Status& status, std::string_view param);

// "chatcmpl-" and 24 random hexadecimal digits.
std::string MakeId(const std::string& prefix);

}  // namespace tandem::gateway
