// One piece of packing: consecutive rows of a source tensor into a shard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "services/common/weights/packed_tensor.h"
#include "services/loader/packing/packing_plan.h"
#include "services/loader/source/model_source.h"

namespace tandem::loader {

// Rows [first_source_row, +num_rows) of a part that all lie in shard `shard` of their tensor.
struct RowRange {
  uint32_t tensor = 0;  // index into PackingPlan::tensors
  uint32_t part = 0;
  uint32_t shard = 0;
  uint64_t first_source_row = 0;
  uint64_t num_rows = 0;
};

// Every row of every part of the plan once, in ranges of about `bytes_per_range` source bytes but
// whole tiles, in order of the regions they go to.
std::vector<RowRange> SplitRows(const PackingPlan& plan, const std::vector<SourceTensor>& sources,
                                uint64_t bytes_per_range);

// Reads the rows of `range` and writes them, packed, to the shard that begins at `shard_data`,
// whose memory was zero: the rows that fill up its last tile are not written. `scratch` and
// `numbers` are the caller's, reused between calls.
absl::Status PackRows(const ModelSource& source, const PackingPlan& plan, const RowRange& range,
                      std::byte* shard_data, std::vector<std::byte>& scratch,
                      std::vector<float>& numbers);

}  // namespace tandem::loader
