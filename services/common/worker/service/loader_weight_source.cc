#include "services/common/worker/service/loader_weight_source.h"

#include <utility>

#include "services/common/base/status_macros.h"

namespace tandem {

absl::StatusOr<LoaderClient*> LoaderWeightSource::Client(const std::string& loader_target) {
  if (client_ == nullptr || target_ != loader_target) {
    TANDEM_ASSIGN_OR_RETURN(client_, LoaderClient::Create(loader_target));
    target_ = loader_target;
  }
  return client_.get();
}

absl::StatusOr<LeasedWeights> LoaderWeightSource::FetchWeights(const std::string& loader_target,
                                                               const std::string& model_id,
                                                               const std::string& holder) {
  TANDEM_ASSIGN_OR_RETURN(LoaderClient* const client, Client(loader_target));
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<Lease> lease, client->AcquireLease(model_id, holder));
  LeasedWeights leased;
  TANDEM_ASSIGN_OR_RETURN(leased.weights, client->FetchWeights(*lease));
  leased.lease = std::move(lease);
  return leased;
}

bool LoaderWeightSource::IsAlive(const LeasedWeights& weights) const {
  const auto* lease = static_cast<const Lease*>(weights.lease.get());
  return lease != nullptr && lease->alive();
}

absl::StatusOr<UniqueFd> LoaderWeightSource::FetchExchange(const std::string& loader_target,
                                                           const std::string& lease_token,
                                                           uint32_t region_id) {
  TANDEM_ASSIGN_OR_RETURN(LoaderClient* const client, Client(loader_target));
  TANDEM_ASSIGN_OR_RETURN(Region region, client->FetchRegion(lease_token, region_id));
  return std::move(region.fd);
}

}  // namespace tandem
