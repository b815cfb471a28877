#include "tests/bench/packed_weights.h"

#include <utility>
#include <vector>

#include "services/common/base/status_macros.h"
#include "services/loader/packing/packer.h"

namespace tandem::bench {

absl::StatusOr<std::shared_ptr<const WeightSet>> PackWeights(const loader::ModelSource& source) {
  const loader::PackOptions options;
  TANDEM_ASSIGN_OR_RETURN(
      loader::PackingPlan plan,
      loader::PlanPacking(source.tensors(), source.config(), options.max_region_bytes));
  TANDEM_ASSIGN_OR_RETURN(loader::PackedModel packed,
                          loader::PackModel(source, std::move(plan), options, nullptr));
  std::vector<WeightRegion> regions;
  for (loader::PackedRegion& region : packed.regions) {
    TANDEM_ASSIGN_OR_RETURN(
        Mapping mapping, Mapping::Map(region.fd.get(), region.bytes, Mapping::Access::kReadOnly));
    regions.push_back({.fd = std::move(region.fd), .mapping = std::move(mapping)});
  }
  TANDEM_ASSIGN_OR_RETURN(auto weights,
                          WeightSet::Create(source.content_id(), source.config(),
                                            std::move(packed.tensors), std::move(regions)));
  return std::shared_ptr<const WeightSet>(std::move(weights));
}

}  // namespace tandem::bench
