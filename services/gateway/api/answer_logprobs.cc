#include "services/gateway/api/answer_logprobs.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/gateway/api/api_error.h"

namespace tandem::gateway {

absl::Status BoundLogprobs(const AnswerLogprobs& logprobs, uint64_t max_sequence_len,
                           std::span<EngineRequest> runs) {
  if (logprobs.copies == 0) return absl::OkStatus();
  const auto room = [max_sequence_len](const EngineRequest& run) {
    const uint64_t prompt = run.prompt.size();
    return max_sequence_len > prompt ? max_sequence_len - prompt : 1;
  };
  uint64_t total = 0;
  uint64_t most_each = 0;   // entries of one token
  uint64_t open_width = 0;  // entries of one token of each run without max_tokens
  for (const EngineRequest& run : runs) {
    const uint64_t each = logprobs.copies * (1 + uint64_t{run.num_alternatives});
    most_each = std::max(most_each, each);
    if (run.prompt_logprobs) total += each * run.prompt.size();
    if (run.max_tokens == kNoTokenLimit) {
      open_width += each;
    } else {
      total += each * std::min<uint64_t>(run.max_tokens, room(run));
    }
  }
  if (total + open_width > kMaxAnswerLogprobs) {
    return ParamError(
        logprobs.member, "invalid_value",
        absl::StrFormat("Invalid '%s': this answer could have %d log-probabilities (%d sequences, "
                        "%d for each token), at most %d fit into one. Ask for fewer alternatives, "
                        "tokens or choices%s.",
                        logprobs.member, total + open_width, runs.size(), most_each,
                        kMaxAnswerLogprobs, logprobs.fewer_in_stream ? ", or stream it" : ""));
  }
  if (open_width == 0) return absl::OkStatus();
  const uint64_t left = (kMaxAnswerLogprobs - total) / open_width;
  for (EngineRequest& run : runs) {
    if (run.max_tokens == kNoTokenLimit && left < room(run)) {
      run.max_tokens = static_cast<uint32_t>(left);
    }
  }
  return absl::OkStatus();
}

uint32_t MaxUnreadTokens(uint32_t most, std::span<const EngineRequest> runs) {
  uint64_t width = 1;
  for (const EngineRequest& run : runs) width += 1 + uint64_t{run.num_alternatives};
  return static_cast<uint32_t>(std::min<uint64_t>(most, kMaxAnswerLogprobs / width + 1));
}

}  // namespace tandem::gateway
