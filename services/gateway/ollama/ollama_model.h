// A model's description for Ollama's clients.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "services/common/model/model_config.h"
#include "services/gateway/api/json.h"
#include "services/gateway/model/served_model.h"

namespace tandem::gateway {

// Weights of the model, norms included; the embedding, which is also the head, once.
uint64_t CountParameters(const ModelConfig& config);

// The entries of /api/tags: one for each listed name of the model, as Ollama lists copies of a
// model.
Json OllamaTags(const ServedModel& model, absl::Time started);
// An entry of /api/ps.
Json OllamaProcess(const ServedModel& model, absl::Time started);
// The answer of /api/show.
Json OllamaShow(const ServedModel& model, absl::Time started);

}  // namespace tandem::gateway
