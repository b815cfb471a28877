// How many log-probabilities one answer may have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "services/gateway/engine/request_run.h"

namespace tandem::gateway {

// Of all tokens and their alternatives.  At 128 bytes each, more than an entry has on average, they
// are what one client can have of the memory for answers (HttpServerOptions::max_answers_bytes).
inline constexpr uint64_t kMaxAnswerLogprobs = 1 << 20;

// How an answer reports log-probabilities.
struct AnswerLogprobs {
  // How often one body, or one piece of a stream, repeats those of all tokens.  0: it has none, or a
  // stream sends each token's with the token.
  size_t copies = 0;
  const char* member = "top_logprobs";  // of the request, for errors
  bool fewer_in_stream = true;          // whether a stream has fewer copies
};

// Checks that what `runs` can report fits into one answer.  A run without max_tokens gets as many
// as fit.  `max_sequence_len`: tokens, prompt included.  INVALID_ARGUMENT: a ParamError with the
// numbers.
absl::Status BoundLogprobs(const AnswerLogprobs& logprobs, uint64_t max_sequence_len,
                           std::span<EngineRequest> runs);

// Tokens of each of `runs` that a stream's reader may leave unread: `most`, or fewer, so that the
// piece with all of them is no larger than an answer may be.
uint32_t MaxUnreadTokens(uint32_t most, std::span<const EngineRequest> runs);

}  // namespace tandem::gateway
