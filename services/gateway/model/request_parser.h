// Public requests to engine requests: every parameter is checked, by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/engine/request_run.h"
#include "services/gateway/model/served_model.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

inline constexpr int kMaxStops = 16;
inline constexpr size_t kMaxStopBytes = 1024;
inline constexpr uint32_t kMaxLogprobs = 20;
inline constexpr size_t kMaxRequestIdBytes = 128;
inline constexpr size_t kMaxCacheSaltBytes = 256;
inline constexpr int kMaxMessages = 16384;
inline constexpr size_t kMaxPredictionBytes = size_t{1} << 20;
inline constexpr int kMaxEmbedInputs = 2048;        // OpenAI's
inline constexpr size_t kMaxEmbedTokens = 300'000;  // OpenAI's, of all inputs; a context at least

// All: INVALID_ARGUMENT names the parameter, its value and its range, or says
// "context_length_exceeded" with the prompt's tokens and the context's; NOT_FOUND another model.
absl::StatusOr<EngineRequest> ParseGenerate(const v1::GenerateRequest& request,
                                            const ServedModel& model);
absl::StatusOr<EngineRequest> ParseChat(const v1::ChatRequest& request, const ServedModel& model);
// The same, where a picture whose data is one of the checked URLs is fetched before it is decoded.
absl::StatusOr<EngineRequest> ParseChatWithUrls(const v1::ChatRequest& request,
                                                const ServedModel& model, const PictureUrls& urls);
// A request for each input.
absl::StatusOr<std::vector<EngineRequest>> ParseEmbed(const v1::EmbedRequest& request,
                                                      const ServedModel& model);

}  // namespace tandem::gateway
