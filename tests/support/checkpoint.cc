#include "tests/support/checkpoint.h"

#include <utility>
#include <vector>

#include "services/common/base/status_macros.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/packing/packer.h"

namespace tandem::testing {

absl::StatusOr<Checkpoint> LoadCheckpoint(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const auto source, loader::OpenModelSource(path));
  TANDEM_ASSIGN_OR_RETURN(
      loader::PackedModel packed,
      loader::PackModel(*source, {}, [](const loader::PackProgress&) { return true; }));
  std::vector<WeightRegion> regions;
  for (const loader::PackedRegion& packed_region : packed.regions) {
    TANDEM_RETURN_IF_ERROR(SealSize(packed_region.fd.get()));
    WeightRegion region;
    TANDEM_ASSIGN_OR_RETURN(region.fd, ReopenReadOnly(packed_region.fd.get()));
    TANDEM_ASSIGN_OR_RETURN(region.mapping, Mapping::Map(region.fd.get(), packed_region.bytes,
                                                         Mapping::Access::kReadOnly));
    regions.push_back(std::move(region));
  }
  TANDEM_ASSIGN_OR_RETURN(auto weights,
                          WeightSet::Create(source->content_id(), source->config(),
                                            std::move(packed.tensors), std::move(regions)));
  return Checkpoint{std::move(weights), source->vocabulary()};
}

}  // namespace tandem::testing
