// What a seed stands for: a cluster, the requests of its clients, and what goes wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/replicas/replica_role.h"
#include "tools/simulate/cluster/worker_process.h"

namespace tandem::simulate {

struct SimulatedRequest {
  gateway::EngineRequest request;
  absl::Duration arrival;  // since the gateway is up
  absl::Duration pause;    // of its client between two reads
  absl::Duration cancel_after = absl::InfiniteDuration();
};

enum class TroubleKind : uint8_t { kKillWorker, kKillLoader, kWorkerTrouble, kLeave, kShutDown };

struct Trouble {
  TroubleKind kind = TroubleKind::kWorkerTrouble;
  absl::Duration at;     // since the gateway is up
  absl::Duration lasts;  // until it is healed
  size_t subject = 0;    // the worker or replica
  WorkerTrouble worker;
};

struct SimulatedReplica {
  std::vector<size_t> workers, npus;  // indices into Scenario::workers
  gateway::ReplicaRole role = gateway::ReplicaRole::kBoth;
};

struct Scenario {
  uint64_t seed = 0;
  uint32_t switch_one_in = 8;
  std::vector<WorkerSetup> workers;
  std::vector<SimulatedReplica> replicas;
  gateway::ExecutorOptions executor;  // of every replica, but for its workers
  gateway::EngineOptions engine;
  bool drafts = false;                     // by lookup
  std::vector<SimulatedRequest> requests;  // by arrival
  std::vector<Trouble> troubles;           // by time

  // Whether a request may end because no worker is there, and because its step failed.
  bool MayLoseWorkers() const;
  bool MayFailSteps() const;
  // When the last request has come and everything is healed.
  absl::Duration Calm() const;
};

Scenario DrawScenario(uint64_t seed);

// A line for each part, for logs.
std::string Describe(const Scenario& scenario);

}  // namespace tandem::simulate
