// Where every tensor of a model will lie, decided before a byte is read: plain data in, plain data
// out.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/model/model_config.h"
#include "services/common/weights/packed_tensor.h"
#include "services/loader/source/model_source.h"

namespace tandem::loader {

// One source tensor's place in a packed one: its row i becomes row first_row + i * row_step.
struct PackedPart {
  uint32_t source = 0;  // index into ModelSource::tensors()
  uint64_t first_row = 0;
  uint64_t row_step = 1;
};

struct PlannedTensor {
  PackedTensor tensor;            // with its shards
  std::vector<PackedPart> parts;  // one, or those of a fused matrix
};

struct PackingPlan {
  std::vector<PlannedTensor> tensors;  // in order of the stages that read them
  std::vector<uint64_t> region_bytes;
  uint64_t source_bytes = 0;
  uint64_t packed_bytes = 0;  // sum of region_bytes
};

inline constexpr uint64_t kHugePageBytes = 2ull << 20;

// Fuses, chooses formats and lays shards out in regions of at most `max_region_bytes`.  A vision
// encoder (config.vision) has regions of its own.  Regions are
// multiples of 2 MiB, those smaller than that of 4 KiB.  A matrix is cut between rows only
// when a whole region cannot hold it; then at multiples of 256 rows where that many fit, else of
// 128, 64 or 32, so that tiles stay whole.  Norms become f32.  Q, K and V keep their own block
// formats, in shards of their own; other parts that differ become f16, with a warning in the log.
// INVALID_ARGUMENT: a part is missing, doubled, misshapen or no
// multiple of its format's block. RESOURCE_EXHAUSTED: `max_region_bytes` is too small for one tile
// of rows.
absl::StatusOr<PackingPlan> PlanPacking(const std::vector<SourceTensor>& sources,
                                        const ModelConfig& config, uint64_t max_region_bytes);

}  // namespace tandem::loader
