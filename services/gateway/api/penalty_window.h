// How far back penalties look: repeat_last_n of llama.cpp's and Ollama's clients.
#pragma once

#include "services/gateway/api/json_fields.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// The default of llama.cpp and Ollama.
inline constexpr uint32_t kDefaultPenaltyWindow = 64;

// Reads repeat_last_n: penalties look at that many tokens; -1: at all tokens; 0: no penalties.  If
// it is absent: kDefaultPenaltyWindow with `by_default`, else all tokens.
void ReadPenaltyWindow(JsonFields& fields, bool by_default, v1::SamplingParams& params);

}  // namespace tandem::gateway
