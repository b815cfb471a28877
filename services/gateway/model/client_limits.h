// Reserves a request's share of the limits of its API key, for all APIs.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/model/embed_run.h"
#include "services/gateway/model/served_model.h"

namespace tandem::gateway {

// Reserves the most that `requests` may use, and sets their tenant to the client's.  A request
// without max_tokens gets the tokens that the key has left.  RESOURCE_EXHAUSTED as
// ClientReservation::Make.
absl::StatusOr<std::unique_ptr<ClientReservation>> ReserveAnswers(
    const std::shared_ptr<HttpClient>& client, const ServedModel& model,
    std::span<EngineRequest> requests);

// The same for embeddings.  Returns a run for the caller to start.  The run gives its unused share
// back before it calls `done`.  REQUIRES: at least one request, all for embeddings.
absl::StatusOr<std::shared_ptr<EmbedRun>> ReserveEmbedding(
    const std::shared_ptr<HttpClient>& client, const ServedModel& model,
    std::vector<EngineRequest> requests, EmbedRun::Done done);

}  // namespace tandem::gateway
