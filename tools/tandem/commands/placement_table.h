// The placements that a cluster can choose among, as a table.
#pragma once

#include <string>

#include "tandem/v1/generation.pb.h"

namespace tandem {

// Empty where there is no choice.
std::string PlacementTable(const v1::GetStatusResponse& status);

}  // namespace tandem
