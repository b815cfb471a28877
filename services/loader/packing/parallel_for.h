// A loop over items of equal work, on several threads.
#pragma once

#include <cstddef>
#include <functional>

#include "absl/status/status.h"

namespace tandem::loader {

// `num_threads` itself, or one a core for 0.
int ThreadCount(int num_threads);

// Runs `item(i, thread)` for every i < count on `num_threads` threads, roughly in that order, until
// all items are done or one fails.  `watch` runs on the calling thread ten times a second; an error
// that it returns stops the loop.  Returns the first error.
absl::Status ParallelFor(int num_threads, size_t count,
                         const std::function<absl::Status(size_t item, int thread)>& item,
                         const std::function<absl::Status()>& watch);

}  // namespace tandem::loader
