#include "services/gateway/openai/openai_parts.h"

#include <algorithm>
#include <map>
#include <set>

#include "services/common/version/version.h"

namespace tandem::gateway {
const char* FinishReasonName(v1::FinishReason reason) {
  if (reason == v1::FINISH_REASON_TOOL_CALLS) return "tool_calls";
  return reason == v1::FINISH_REASON_LENGTH ? "length" : "stop";
}

void UsageSum::Add(const v1::Usage& usage, bool new_prompt, bool first) {
  if (first) seed_ = usage.seed();
  if (new_prompt) {
    prompt_tokens_ += usage.prompt_tokens();
    cached_tokens_ += usage.cached_tokens();
    image_tokens_ += usage.image_tokens();
  }
  completion_tokens_ += usage.completion_tokens();
  accepted_tokens_ += usage.accepted_prediction_tokens();
  rejected_tokens_ += usage.rejected_prediction_tokens();
  runs_.push_back(usage);
}

Json UsageSum::ToJson() const {
  Json details = {{"cached_tokens", cached_tokens_}, {"audio_tokens", 0}};
  if (image_tokens_ > 0) details["image_tokens"] = image_tokens_;
  return {{"prompt_tokens", prompt_tokens_},
          {"completion_tokens", completion_tokens_},
          {"total_tokens", prompt_tokens_ + completion_tokens_},
          {"prompt_tokens_details", std::move(details)},
          {"completion_tokens_details",
           {{"reasoning_tokens", 0},
            {"audio_tokens", 0},
            {"accepted_prediction_tokens", accepted_tokens_},
            {"rejected_prediction_tokens", rejected_tokens_}}}};
}

Json UsageSum::ToResponsesJson() const {
  Json details = {{"cached_tokens", cached_tokens_}};
  if (image_tokens_ > 0) details["image_tokens"] = image_tokens_;
  return {{"input_tokens", prompt_tokens_},
          {"input_tokens_details", std::move(details)},
          {"output_tokens", completion_tokens_},
          {"output_tokens_details", {{"reasoning_tokens", 0}}},
          {"total_tokens", prompt_tokens_ + completion_tokens_}};
}

Json UsageSum::ToTandemJson(const std::string& placement,
                            const std::vector<std::string>& ignored) const {
  std::map<std::string, double> seconds, joules;
  std::set<uint32_t> replicas;
  double queue = 0.0;
  double first_token = runs_.empty() ? 0.0 : runs_[0].first_token_seconds();
  double total = 0.0;
  for (const v1::Usage& run : runs_) {
    queue = std::max(queue, run.queue_seconds());
    first_token = std::min(first_token, run.first_token_seconds());
    total = std::max(total, run.total_seconds());
    replicas.insert(run.replica());
    for (const v1::DeviceTime& time : run.device_times()) {
      seconds[time.worker()] += time.seconds();
      if (time.joules() > 0.0) joules[time.worker()] += time.joules();
    }
  }
  Json json = {{"placement", placement},
               {"replicas", replicas},
               {"seed", seed_},
               {"queue_seconds", queue},
               {"first_token_seconds", first_token},
               {"total_seconds", total},
               {"device_seconds", seconds},
               {"device_joules", joules}};
  if (!ignored.empty()) json["ignored"] = ignored;
  return json;
}

std::string SystemFingerprint() { return std::string("tandem-") + Version(); }

void AppendEvent(const Json& json, std::string& out) {
  out += "data: ";
  out += DumpJson(json);
  out += "\n\n";
}

}  // namespace tandem::gateway
