// WeightSource over the loader service.
#pragma once

#include <memory>
#include <string>

#include "services/common/rpc/loader_client.h"
#include "services/common/worker/service/weight_source.h"

namespace tandem {

class LoaderWeightSource final : public WeightSource {
 public:
  absl::StatusOr<LeasedWeights> FetchWeights(const std::string& loader_target,
                                             const std::string& model_id,
                                             const std::string& holder) override;
  bool IsAlive(const LeasedWeights& weights) const override;
  absl::StatusOr<UniqueFd> FetchExchange(const std::string& loader_target,
                                         const std::string& lease_token,
                                         uint32_t region_id) override;

 private:
  // The client of a target, kept while the target stays the same.
  absl::StatusOr<LoaderClient*> Client(const std::string& loader_target);

  std::string target_;
  std::unique_ptr<LoaderClient> client_;
};

}  // namespace tandem
