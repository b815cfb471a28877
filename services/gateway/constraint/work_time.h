// The clock of the compiler's deadlines.
#pragma once

#include <ctime>

#include "absl/time/time.h"

namespace tandem::gateway::constraint {

// The calling thread's processor time since it began, after the epoch.  A busy machine refuses nothing that an idle one
// compiles.
inline absl::Time WorkTime() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return absl::TimeFromTimespec(used);
}

}  // namespace tandem::gateway::constraint
