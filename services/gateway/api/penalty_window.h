// How far back penalties look, as llama.cpp's and Ollama's clients say it.
#pragma once

#include "services/gateway/api/json_fields.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// What llama.cpp and Ollama take where a request does not say.
inline constexpr uint32_t kDefaultPenaltyWindow = 64;

// `fields`' repeat_last_n: penalties look at that many tokens; -1: at all of them; 0: there are no
// penalties.  Where it is absent: kDefaultPenaltyWindow if `by_default`, else all of them.
void ReadPenaltyWindow(JsonFields& fields, bool by_default, v1::SamplingParams& params);

}  // namespace tandem::gateway
