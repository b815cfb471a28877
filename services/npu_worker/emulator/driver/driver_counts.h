// What the emulated driver's device has done, for tests.
#pragma once

#include <dlfcn.h>

#include <cstdint>

#include "services/common/base/check.h"

namespace tandem::npu::emulator {

struct DriverCounts {
  uint64_t submissions = 0;      // that the driver took: a command, or a chain of them
  uint64_t commands = 0;         // that were begun, each one of a chain
  uint64_t context_changes = 0;  // commands of another context than the one before
  uint64_t configurations = 0;   // loads of an array's configuration
  uint32_t open_contexts = 0;    // now
  uint32_t most_contexts = 0;    // open at one time
};

// Of the emulated driver that is preloaded into this process.  REQUIRES one (run.sh).
inline DriverCounts ReadDriverCounts() {
  // preloaded.cc has it.
  auto* const read =
      reinterpret_cast<void (*)(DriverCounts*)>(::dlsym(RTLD_DEFAULT, "tandem_npu_driver_counts"));
  TANDEM_CHECK(read != nullptr);
  DriverCounts counts;
  read(&counts);
  return counts;
}

}  // namespace tandem::npu::emulator
