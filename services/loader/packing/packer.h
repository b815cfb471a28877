// A model's files -> packed weights in shared memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/base/unique_fd.h"
#include "services/common/weights/packed_tensor.h"
#include "services/loader/packing/packing_plan.h"
#include "services/loader/source/model_source.h"

namespace tandem::loader {

struct PackOptions {
  uint64_t max_region_bytes = kDefaultRegionBytes;
  int num_threads = 0;  // 0: one per core
};

struct PackProgress {
  std::string phase;        // "packing layer 7 gate_up"
  uint64_t done_bytes = 0;  // of the files' weights
  uint64_t total_bytes = 0;
};

// One shared-memory object full of weights, read-write and not yet sealed.
struct PackedRegion {
  UniqueFd fd;
  uint64_t bytes = 0;
};

struct PackedModel {
  std::vector<PackedTensor> tensors;
  std::vector<PackedRegion> regions;
  uint64_t source_bytes = 0;
};

// Packs `source` on `num_threads` threads, each reading about a megabyte at a time.  `progress` is
// called from the calling thread ten times a second, and once at the end; false stops the work
// (CANCELLED).
// RESOURCE_EXHAUSTED: not enough memory, with the amounts, found before and not by a fault.
// DATA_LOSS: a file changed underneath.  INVALID_ARGUMENT: as PlanPacking, or a number that f16
// cannot hold in a matrix that had to become f16.
absl::StatusOr<PackedModel> PackModel(const ModelSource& source, const PackOptions& options,
                                      const std::function<bool(const PackProgress&)>& progress);
// The same, with what PlanPacking said of `source`; max_region_bytes is not looked at again.
absl::StatusOr<PackedModel> PackModel(const ModelSource& source, PackingPlan plan,
                                      const PackOptions& options,
                                      const std::function<bool(const PackProgress&)>& progress);

}  // namespace tandem::loader
