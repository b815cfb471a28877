// Lets a test wait for another thread or process.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tandem::testing {

// Calls `condition()` once a millisecond and succeeds as soon as it is true.  Fails if it is still
// false after `patience`: by default far longer than anything takes on a busy machine, and shorter
// than a test's time limit.
//
//   ASSERT_TRUE(testing::Eventually([&] { return server.connections() == 0; }));
template <typename Condition>
::testing::AssertionResult Eventually(Condition&& condition,
                                      absl::Duration patience = absl::Minutes(1)) {
  const absl::Time deadline = absl::Now() + patience;
  while (!condition()) {
    if (absl::Now() >= deadline) {
      return ::testing::AssertionFailure()
             << "still false after " << absl::FormatDuration(patience);
    }
    absl::SleepFor(absl::Milliseconds(1));
  }
  return ::testing::AssertionSuccess();
}

}  // namespace tandem::testing
