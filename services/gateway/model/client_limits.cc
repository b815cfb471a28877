#include "services/gateway/model/client_limits.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "services/common/base/status_macros.h"

namespace tandem::gateway {

absl::StatusOr<std::unique_ptr<ClientReservation>> ReserveAnswers(
    const std::shared_ptr<HttpClient>& client, const ServedModel& model,
    std::span<EngineRequest> requests) {
  const uint64_t context = model.replicas().max_sequence_len();
  RequestCost cost{.sequences = std::max<uint64_t>(requests.size(), 1)};
  cost.at_once = cost.sequences;
  uint64_t num_open = 0;
  const auto room = [&](const EngineRequest& request) {
    return context > request.prompt.size() ? context - request.prompt.size() : 1;
  };
  for (EngineRequest& request : requests) {
    request.tenant = {client->tenant(), client->weight()};
    request.cache_scope = client->cache_scope();
    request.priority = std::max(request.priority, client->least_priority());
    cost.tokens += request.prompt.size();
    if (request.max_tokens == kNoTokenLimit) {
      ++num_open;
    } else {
      cost.tokens += std::min<uint64_t>(request.max_tokens, room(request));
    }
  }
  const std::optional<uint64_t> left = client->tokens_left();
  if (left.has_value() && num_open > 0) {
    const uint64_t each =
        std::max<uint64_t>(*left > cost.tokens ? (*left - cost.tokens) / num_open : 0, 1);
    for (EngineRequest& request : requests) {
      if (request.max_tokens != kNoTokenLimit) continue;
      request.max_tokens = static_cast<uint32_t>(std::min(each, room(request)));
      cost.tokens += request.max_tokens;
    }
  }
  return ClientReservation::Make(client, cost);
}

absl::StatusOr<std::shared_ptr<EmbedRun>> ReserveEmbedding(
    const std::shared_ptr<HttpClient>& client, const ServedModel& model,
    std::vector<EngineRequest> requests, EmbedRun::Done done) {
  RequestCost cost{.sequences = requests.size()};
  const uint64_t most =
      std::max<uint64_t>(client->max_at_once().value_or(EmbedRun::kMostAtOnce), 1);
  cost.at_once = std::min<uint64_t>({cost.sequences, EmbedRun::kMostAtOnce, most});
  for (EngineRequest& request : requests) {
    request.tenant = {client->tenant(), client->weight()};
    request.priority = std::max(request.priority, client->least_priority());
    cost.tokens += request.prompt.size();
  }
  TANDEM_ASSIGN_OR_RETURN(auto reservation, ClientReservation::Make(client, cost));
  return EmbedRun::Create(
      model.replicas(), std::move(requests),
      [reservation = std::shared_ptr(std::move(reservation)),
       done = std::move(done)](EmbedResult result) mutable {
        reservation->Charge(result.usage.prompt_tokens(), 0);
        reservation = nullptr;  // before the client can send its next request
        done(std::move(result));
      },
      cost.at_once);
}

}  // namespace tandem::gateway
