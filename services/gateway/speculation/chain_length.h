// How many guesses of each chain to verify in the next step.
//
// The guess at depth j of a chain yields a token if it and all before it are accepted: with
// probability p1 p2 ... pj.  Each guess is a row, and a step of more rows takes longer.  So guesses
// are added in order of their probability as long as the tokens that the step is expected to decide,
// by its time, grow:
//
//                     rows + sum of the guesses' probabilities
//   tokens a second = ----------------------------------------
//                     time of a step of (rows + guesses) rows + gap
//
// Plain decoding has the first alone.  Where it can queue its steps it has no gap either; a step
// with guesses waits for the outcome of the one before it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/gateway/speculation/cost_table.h"

namespace tandem::gateway {

// A chain that could be verified.
struct ChainOffer {
  std::span<const float> probabilities;  // by guess, given that those before it are accepted
  double start = 1.0;                    // probability that the chain can be used at all
};

struct StepTerms {
  uint32_t num_rows = 0;       // decode rows of the step without guesses
  double plain_seconds = 0.0;  // of a step without guesses; 0: as the table has it
  double plain_gap = 0.0;      // seconds between such steps
  double extra_seconds = 0.0;  // that guessing itself keeps the step waiting
};

// A step with guesses must promise this much more than one without.
inline constexpr double kLeastGain = 1.02;

// Fills `lengths`, by offer, and returns the tokens a second that they promise.  If guesses do not
// pay, all lengths and the result are 0.  REQUIRES costs.known() and terms.num_rows > 0.
double ChooseLengths(const CostTable& costs, const StepTerms& terms,
                     std::span<const ChainOffer> offers, std::vector<uint32_t>& lengths);

}  // namespace tandem::gateway
