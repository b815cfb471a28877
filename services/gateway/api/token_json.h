// Tokens and their log-probabilities as clients of the JSON APIs expect them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "services/gateway/sampling/sampler.h"
#include "services/gateway/tokenizer/tokenizer.h"

namespace tandem::gateway {

// Bytes as text: those that are not UTF-8 become U+FFFD.
std::string AsText(std::string_view bytes);
// The text of a token; of a control token, which has no text, its name.
std::string TokenText(uint32_t token, const Tokenizer& tokenizer);
// -9999 for minus infinity, as in OpenAI's answers: JSON has no infinity.
double FiniteLogprob(float logprob);

// Appends an element of a JSON array, with a comma if `list` has one already:
// {"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}]}
// An answer keeps these as text: a JSON tree of them takes ten times the memory.
void AppendTokenLogprob(const Decision& decision, const Tokenizer& tokenizer, std::string& list);
void AppendTokenLogprobs(std::span<const Decision> decisions, const Tokenizer& tokenizer,
                         std::string& list);

}  // namespace tandem::gateway
