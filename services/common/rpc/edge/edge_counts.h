// Counters of a gRPC edge, for metrics.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "services/common/rpc/edge/h2_guard.h"

namespace tandem {

// Thread-safe.
struct EdgeCounts {
  std::atomic<uint64_t> connections{0};                      // open now
  std::atomic<uint64_t> foreign{0};                          // of other users, refused
  std::atomic<uint64_t> evicted{0};                          // closed to make room
  std::array<std::atomic<uint64_t>, kNumH2Faults> ended{};   // connections, by H2Fault
  std::array<std::atomic<uint64_t>, kNumH2Faults> resets{};  // streams, by H2Fault
};

}  // namespace tandem
