// Threads and time of a simulation.
//
// The program's threads are real, but only one runs at a time, and which one goes on is drawn from a
// seed wherever a thread waits, sleeps, yields or takes a lock.  Time stands still while a thread
// runs (but for a microsecond each time it looks) and jumps to the next deadline when all threads
// wait.  So a run of minutes takes milliseconds, and the same seed gives the same run.
//
// The code under test does not know: interposed.cc defines the functions of pthreads, of the clock
// and of absl's waits for the whole program.  Outside of Run they do what the C library's do.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"

namespace tandem::simulate {

struct WorldOptions {
  uint64_t seed = 1;
  // At a lock another thread goes on with a probability of 1 in so many.  REQUIRES > 0.
  uint32_t switch_one_in = 8;
  // A simulation that takes longer is stuck.
  absl::Duration time_limit = absl::Hours(1);
  // Called instead of waiting for ever: every thread waits without a deadline, time_limit has passed,
  // or `body` has ended before its threads.  `report` names the threads and what they wait for.  The
  // process ends when it returns.
  std::function<void(const std::string& report)> on_stuck;
};

// Runs `body` and the threads it makes.  REQUIRES that no other thread runs, and no other world.
void Run(const WorldOptions& options, const std::function<void()>& body);

// The following are for threads of a world.

// Since Run.
absl::Duration Elapsed();
// How Elapsed is written in logs and reports.
std::string ElapsedText();
// Of this thread, for reports.
void NameThread(std::string name);

}  // namespace tandem::simulate
