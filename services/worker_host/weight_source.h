// The source of a worker's weights and exchange region.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/common/base/unique_fd.h"
#include "services/common/weights/weight_set.h"

namespace tandem {

// Weights, and the lease that keeps them.
struct LeasedWeights {
  std::shared_ptr<const WeightSet> weights;  // shared with the Worker; outlives the lease
  std::shared_ptr<void> lease;               // ends with its last copy
};

// The loader, or a stand-in for it in tests.  Calls block; one thread at a time.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // A lease on the model and its weights, mapped.  NOT_FOUND: not resident at the loader.
  virtual absl::StatusOr<LeasedWeights> FetchWeights(const std::string& loader_target,
                                                     const std::string& model_id,
                                                     const std::string& holder) = 0;
  // The same from this worker's own loader, which loads the model if it is not resident: by the
  // configured name, else by `model_name`.  FAILED_PRECONDITION: no such loader, or its model of
  // that name is a different one.
  using Progress = std::function<void(double fraction, std::string_view phase)>;
  virtual absl::StatusOr<LeasedWeights> FetchOwnWeights(const std::string& model_id,
                                                        const std::string& model_name,
                                                        const std::string& holder,
                                                        const Progress& progress) = 0;
  // Whether the lease is still valid at the loader.
  virtual bool IsAlive(const LeasedWeights& weights) const = 0;
  // The exchange region, read-write.
  virtual absl::StatusOr<UniqueFd> FetchExchange(const std::string& loader_target,
                                                 const std::string& lease_token,
                                                 uint32_t region_id) = 0;
};

}  // namespace tandem
