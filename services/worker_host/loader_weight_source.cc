#include "services/worker_host/loader_weight_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
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

absl::StatusOr<LeasedWeights> LoaderWeightSource::FetchOwnWeights(const std::string& model_id,
                                                                  const std::string& model_name,
                                                                  const std::string& holder,
                                                                  const Progress& progress) {
  if (own_.target.empty()) {
    return absl::FailedPreconditionError(
        "the gateway is on another host, and this worker has no loader on its own: start it with "
        "--loader unix:PATH");
  }
  auto leased = FetchWeights(own_.target, model_id, holder);
  if (!absl::IsNotFound(leased.status())) return leased;
  const std::string& name = own_.model_name.empty() ? model_name : own_.model_name;
  TANDEM_ASSIGN_OR_RETURN(LoaderClient* const client, Client(own_.target));
  const auto model = client->LoadModel(name, [&](const loader::v1::LoadProgress& done) {
    const double total = static_cast<double>(std::max<uint64_t>(done.total_bytes(), 1));
    progress(static_cast<double>(done.done_bytes()) / total, "loading model: " + done.phase());
    return true;
  });
  if (!model.ok()) {
    return absl::Status(model.status().code(),
                        absl::StrFormat("loader at %s: model '%s': %s", own_.target, name,
                                        std::string(model.status().message())));
  }
  if (model->model_id() != model_id) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the loader at %s has model %s as '%s', the gateway's is model %s as '%s': give both hosts "
        "the same files, or name the right one with --model",
        own_.target, model->model_id(), name, model_id, model_name));
  }
  return FetchWeights(own_.target, model_id, holder);
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
