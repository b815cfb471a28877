// Parts of OpenAI's answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/gateway/api/json.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// "stop", "length" or "tool_calls".
const char* FinishReasonName(v1::FinishReason reason);

// The usage of all runs of a request.  The prompt of several choices counts once.
class UsageSum {
 public:
  // `new_prompt`: the first choice of its prompt; `first`: the first run of the request.
  void Add(const v1::Usage& usage, bool new_prompt, bool first);

  // {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", ...}
  Json ToJson() const;
  // The same under the names of /v1/responses.
  Json ToResponsesJson() const;
  // Tandem's own: the placement, the replicas that ended the runs, the seed of the first run, seconds (by device, in the queue, to
  // the first token, in all), and the members that were accepted without effect, if any.
  Json ToTandemJson(const std::string& placement,
                    const std::vector<std::string>& ignored = {}) const;

 private:
  uint64_t prompt_tokens_ = 0;
  uint64_t cached_tokens_ = 0;
  uint64_t image_tokens_ = 0;     // of the prompt
  uint64_t accepted_tokens_ = 0;  // of predictions, and guesses of the gateway's own
  uint64_t rejected_tokens_ = 0;
  uint64_t completion_tokens_ = 0;
  uint64_t seed_ = 0;
  std::vector<v1::Usage> runs_;
};

// "tandem-0.2.0", for OpenAI's member system_fingerprint.
std::string SystemFingerprint();

// "data: " and `json` and an empty line.
void AppendEvent(const Json& json, std::string& out);

}  // namespace tandem::gateway
