// How requests end and by which API they came, in the words of metrics, traces and logs.
#pragma once

#include <cstdint>
#include <string_view>

#include "services/gateway/engine/engine_observer.h"

namespace tandem::gateway {

enum class RequestOutcome : uint8_t { kStop, kLength, kCancelled, kDeadline, kRefused, kFailed };
inline constexpr int kNumRequestOutcomes = 6;

// Never kRefused: the engine had it.
RequestOutcome OutcomeOf(const RequestReport& report);
// "stop".
std::string_view OutcomeName(RequestOutcome outcome);
// "openai".
std::string_view ApiName(Api api);

}  // namespace tandem::gateway
