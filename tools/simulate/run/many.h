// Many seeds, each in a process of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>

namespace tandem::simulate {

struct ManyOptions {
  uint64_t first_seed = 1;
  uint64_t num_seeds = 200;
  uint32_t num_jobs = std::max(1u, std::thread::hardware_concurrency());
  uint32_t seconds = 60;  // of real time that a seed may take
  bool stop = false;      // with the first seed that fails
  bool twice = false;     // each seed; one whose runs differ fails
};

// Prints each seed that fails, and a summary.  Returns an exit code.
int RunMany(const ManyOptions& options);

}  // namespace tandem::simulate
