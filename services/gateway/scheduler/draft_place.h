// Where drafters' guesses could be verified.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::gateway {

// A running sequence whose next row decodes.
struct DraftPlace {
  uint64_t sequence = 0;
  uint32_t max_guesses = 0;  // at least 1: what its limits leave room for
  bool under_way = false;    // the step under way decides the token before its next row
};

// Of the next step.
struct DraftPlaces {
  std::vector<DraftPlace> places;
  uint32_t num_rows = 0;  // decode rows without guesses, those of other sequences included
  bool can_queue = true;  // every such row could be fed with a speculative token
};

}  // namespace tandem::gateway
