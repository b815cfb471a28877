// Waits in tests for what another thread or process does.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tandem::testing {

// Succeeds as soon as `condition()` is true, which is asked once a millisecond.  Fails where it is
// still false after `patience`: by default far longer than anything takes on a busy machine, and
// shorter than a test may run.
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
