// Replicas of the toy model, for tests.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/gateway/engine/testing/engine_harness.h"
#include "services/gateway/replicas/replicas.h"

namespace tandem::gateway::testing {

// Small steps, and quick recoveries.
inline EngineOptions ToyOptions() {
  return {.max_sequences = 8,
          .max_rows = 64,
          .chunk_rows = 16,
          .max_waiting = 1000,
          .min_recovery_pause = absl::Milliseconds(1),
          .max_recovery_pause = absl::Milliseconds(5)};
}

// A fake worker named "toyN" for replica N.
inline ReplicaStart ToyStart(uint32_t replica, FakeExecutorOptions fake = {}) {
  fake.worker = "toy" + std::to_string(replica);
  const std::string key = fake.worker;
  return {.key = key,
          .start = [fake](const Executor::Progress&) -> absl::StatusOr<std::unique_ptr<Executor>> {
            return std::make_unique<FakeExecutor>(fake);
          }};
}

inline std::unique_ptr<Replicas> MakeReplicas(std::vector<ReplicaStart> starts,
                                              EngineOptions options, bool changes = false) {
  auto first = starts[0].start({});
  TANDEM_CHECK(first.ok());
  auto replicas = Replicas::Create({0, *std::move(first)}, ToyTokenizer(), std::move(options),
                                   ReplicaStarts{std::move(starts), changes});
  TANDEM_CHECK(replicas.ok());
  return *std::move(replicas);
}

inline v1::GetStatusResponse StatusOf(const Replicas& replicas) {
  v1::GetStatusResponse status;
  replicas.FillStatus(status);
  return status;
}

// Waits until the replica in this place of the status is in a state.  REQUIRES it comes within a minute.
inline void AwaitState(const Replicas& replicas, uint32_t replica, const std::string& state) {
  const absl::Time patience = absl::Now() + absl::Minutes(1);
  const auto there = [&] {
    const v1::GetStatusResponse status = StatusOf(replicas);
    const auto place = static_cast<int>(replica);
    return place < status.replicas_size() && status.replicas(place).state() == state;
  };
  while (!there()) {
    TANDEM_CHECK(absl::Now() < patience);
    absl::SleepFor(absl::Milliseconds(1));
  }
}

// All of `count` replicas, ready.
inline std::unique_ptr<Replicas> MakeReadyReplicas(std::vector<ReplicaStart> starts,
                                                   EngineOptions options) {
  const auto count = static_cast<uint32_t>(starts.size());
  auto replicas = MakeReplicas(std::move(starts), std::move(options));
  for (uint32_t r = 0; r < count; ++r) AwaitState(*replicas, r, "ready");
  return replicas;
}

}  // namespace tandem::gateway::testing
