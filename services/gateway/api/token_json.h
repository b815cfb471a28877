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
// What a token stands for; a control token's name, since it stands for no text.
std::string TokenText(uint32_t token, const Tokenizer& tokenizer);
// -9999 for the impossible, as OpenAI writes it: JSON has no infinity.
double FiniteLogprob(float logprob);

// {"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}]}
Json TokenLogprob(const Decision& decision, const Tokenizer& tokenizer);

}  // namespace tandem::gateway
