// Ranges of layers: pipeline stages, one after another.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Layers [first, last] for a worker, whole but for the part of an NPU on its host.
struct LayerRange {
  std::string worker;
  uint32_t first = 0;
  uint32_t last = 0;
};

// "gpu1=6-11".  INVALID_ARGUMENT for anything else.
absl::StatusOr<LayerRange> ParseLayerRange(std::string_view text);

// INVALID_ARGUMENT: ranges that do not cover the layers once, in order; names the first that does
// not begin where it must.
absl::Status CheckLayerRanges(const std::vector<LayerRange>& ranges, uint32_t num_layers);

// One past the last layer of each owner, when they share the layers by the memory they have, or
// equally where one does not say (0).  Rounded up, and each has one at least.
// REQUIRES num_layers >= memory_bytes.size().
std::vector<uint32_t> ShareLayers(const std::vector<uint64_t>& memory_bytes, uint32_t num_layers);

}  // namespace tandem
