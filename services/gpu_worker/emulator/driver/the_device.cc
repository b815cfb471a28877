#include "services/gpu_worker/emulator/driver/the_device.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace tandem::rdna {
namespace {

void PrintSummary() {
  const DeviceTotals totals = TheDevice().totals();
  const Counters& c = totals.counters;
  std::fprintf(stderr,
               "gpu emulator: %" PRIu64 " submissions, %" PRIu64 " dispatches, %" PRIu64
               " waves, %" PRIu64 " instructions: %" PRIu64 " vector, %" PRIu64
               " dot products, %" PRIu64 " matrix, %" PRIu64 " LDS, %" PRIu64 " loads, %" PRIu64
               " stores, %" PRIu64 " atomics, %" PRIu64
               " barriers; %.3f ms of the device's clock\n",
               totals.submissions, totals.dispatches, c.waves, c.instructions, c.vector, c.dots,
               c.matrices, c.lds, c.loads, c.stores, c.atomics, c.barriers,
               static_cast<double>(TheDevice().clock().nanoseconds()) * 1e-6 - 1000);
}

Device* Make() {
  const Settings settings = Settings::FromEnvironment();
  const unsigned threads = settings.threads;
  auto* device =
      new Device(settings, [threads](const Dispatch& dispatch, Memory& memory, Counters& counters) {
        return Run(dispatch, memory, threads, &counters);
      });
  if (settings.summary) std::atexit(PrintSummary);
  return device;
}

}  // namespace

Device& TheDevice() {
  static Device* const device = Make();
  return *device;
}

}  // namespace tandem::rdna
