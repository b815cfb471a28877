// The placements that an evaluation executable runs checkpoints on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/plan/planner.h"
#include "services/common/worker/worker.h"

namespace tandem::evaluation {

struct Placement {
  std::vector<Worker*> workers;  // owned by whoever made the placement, for the process's life
  PlacementPolicy policy;
};

// Names of this executable's placements, usable as names of tests.
std::vector<std::string> PlacementNames();
// NOT_FOUND: this machine lacks a device; the tests skip, and say so.  Any other error fails them.
absl::StatusOr<Placement> MakePlacement(const std::string& name);

}  // namespace tandem::evaluation
