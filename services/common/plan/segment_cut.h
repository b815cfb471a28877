// From who runs which stage to the calls of a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/common/plan/stage.h"

namespace tandem {

// The maximal runs of one owner, with the ports that cross between workers.
// `owner`: [NumStages(num_layers)], the worker of each stage by ordinal.
std::vector<Segment> CutSegments(std::span<const uint32_t> owner, uint32_t num_layers);

}  // namespace tandem
