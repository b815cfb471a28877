// Runs a scenario: a gateway's engines, executors and replicas over simulated workers and a loader.
#pragma once

#include <string>

#include "tools/simulate/run/clients.h"
#include "tools/simulate/run/scenario.h"

namespace tandem::simulate {

// Runs it in a world of its own and checks what must hold at the end: every stream has ended as it
// may; the gateway serves again; no request, KV block, region or lease is left.  A simulation that
// is stuck reports that as a violation and ends the process; `end` is called before.
Findings Simulate(const Scenario& scenario, const Note& note,
                  const std::function<void(const Findings&)>& end);

}  // namespace tandem::simulate
