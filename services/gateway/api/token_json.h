// Tokens and their log-probabilities as clients of the JSON APIs expect them.
#pragma once

#include <string>
#include <string_view>

#include "services/gateway/api/json.h"
#include "services/gateway/sampling/sampler.h"
#include "services/gateway/tokenizer/tokenizer.h"

namespace tandem::gateway {

// Bytes as text: those that are not UTF-8 become U+FFFD.
std::string AsText(std::string_view bytes);
// The text of a token; of a control token, which has no text, its name.
std::string TokenText(uint32_t token, const Tokenizer& tokenizer);
// -9999 for minus infinity, as in OpenAI's answers: JSON has no infinity.
double FiniteLogprob(float logprob);

// {"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}]}
Json TokenLogprob(const Decision& decision, const Tokenizer& tokenizer);

}  // namespace tandem::gateway
