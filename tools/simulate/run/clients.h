// The clients of a simulation: each sends a request, reads its stream and checks it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "services/gateway/engine/request_sink.h"
#include "tools/simulate/run/scenario.h"

namespace tandem::simulate {

struct Findings {
  std::vector<std::string> violations;
  uint32_t num_answered = 0;  // in full
  uint32_t num_refused = 0;   // before they began
  uint32_t num_ended = 0;     // with an error, later
  uint32_t num_cancelled = 0;
};

// Notes what happens.
using Note = std::function<void(const std::string& text)>;

// Sends one request and reads its answer to the end.  Violations: tokens that are not those of the
// model alone, a full answer without its end, an end with a status that its troubles do not explain.
// `calm`: nothing goes wrong in this scenario.
void RunClient(const SimulatedRequest& simulated, gateway::RequestSink& gateway, bool calm,
               const Note& note, Findings& findings);

}  // namespace tandem::simulate
