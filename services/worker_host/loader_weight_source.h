// WeightSource over the loader service.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "services/common/rpc/loader_client.h"
#include "services/worker_host/weight_source.h"

namespace tandem {

// A loader on this worker's host, for gateways on others.
struct OwnLoader {
  std::string target;      // "unix:PATH"; empty: no such loader
  std::string model_name;  // the model's name there; empty: the name at the gateway's loader
};

class LoaderWeightSource final : public WeightSource {
 public:
  explicit LoaderWeightSource(OwnLoader own = {}) : own_(std::move(own)) {}

  absl::StatusOr<LeasedWeights> FetchWeights(const std::string& loader_target,
                                             const std::string& model_id,
                                             const std::string& holder) override;
  absl::StatusOr<LeasedWeights> FetchOwnWeights(const std::string& model_id,
                                                const std::string& model_name,
                                                const std::string& holder,
                                                const Progress& progress) override;
  bool IsAlive(const LeasedWeights& weights) const override;
  absl::StatusOr<UniqueFd> FetchExchange(const std::string& loader_target,
                                         const std::string& lease_token,
                                         uint32_t region_id) override;

 private:
  // The client of a target; kept until the target changes.
  absl::StatusOr<LoaderClient*> Client(const std::string& loader_target);

  const OwnLoader own_;
  std::string target_;
  std::unique_ptr<LoaderClient> client_;
};

}  // namespace tandem
