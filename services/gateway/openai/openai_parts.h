// Pieces that OpenAI's answers are made of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/gateway/api/json.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// "stop" or "length".
const char* FinishReasonName(v1::FinishReason reason);

// What a request's runs used together.  The prompt of several choices counts once.
class UsageSum {
 public:
  // `new_prompt`: it is the first of the choices of a prompt; `first`: the first run of all.
  void Add(const v1::Usage& usage, bool new_prompt, bool first);

  // {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", ...}
  Json ToJson() const;
  // The same under the names of /v1/responses.
  Json ToResponsesJson() const;
  // Not OpenAI's: what runs where, the seed of the first run, and seconds by device, of waiting, to
  // the first token and in all; and the members that were taken without effect, if any.
  Json ToTandemJson(const std::string& placement,
                    const std::vector<std::string>& ignored = {}) const;

 private:
  uint64_t prompt_tokens_ = 0;
  uint64_t cached_tokens_ = 0;
  uint64_t completion_tokens_ = 0;
  uint64_t seed_ = 0;
  std::vector<v1::Usage> runs_;
};

// "tandem-0.2.0": what OpenAI calls the configuration that answers.
std::string SystemFingerprint();

// "data: " and `json` and an empty line.
void AppendEvent(const Json& json, std::string& out);

}  // namespace tandem::gateway
