// The clients of a simulation: each sends a request, reads its stream and checks it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/gateway/engine/request_sink.h"
#include "tools/simulate/run/scenario.h"

namespace tandem::simulate {

// How much of what the engines can do has happened.
struct Reached {
  uint64_t steps = 0;
  uint64_t recoveries = 0;   // after the loss of a worker
  uint64_t moved = 0;        // requests that went on at another replica
  uint64_t handed_over = 0;  // of them, with their KV
  uint64_t preemptions = 0;
  uint64_t cached_tokens = 0;     // of prompts, found in the prefix cache
  uint64_t rejected_guesses = 0;  // of the device, for a step that was under way
  uint64_t drafted_tokens = 0;

  Reached& operator+=(const Reached& other) {
    steps += other.steps;
    recoveries += other.recoveries;
    moved += other.moved;
    handed_over += other.handed_over;
    preemptions += other.preemptions;
    cached_tokens += other.cached_tokens;
    rejected_guesses += other.rejected_guesses;
    drafted_tokens += other.drafted_tokens;
    return *this;
  }
};

struct Findings {
  std::vector<std::string> violations;
  Reached reached;
  uint32_t num_answered = 0;  // in full
  uint32_t num_refused = 0;   // before they began
  uint32_t num_ended = 0;     // with an error, later
  uint32_t num_cancelled = 0;
};

// Notes what happens.
using Note = std::function<void(const std::string& text)>;

// Sends one request and reads its answer to the end.  Violations: tokens that are not those of the
// model alone, a full answer without its end, an end with a status that the scenario's troubles do not
// explain.
void RunClient(const SimulatedRequest& simulated, gateway::RequestSink& gateway,
               const Scenario& scenario, const Note& note, Findings& findings);

}  // namespace tandem::simulate
