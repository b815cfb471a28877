// Which workers each replica has: by --replicas, or by the file of --replica-file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::gateway {

// Targets as ParseWorkerTarget takes them.
struct ReplicaWorkers {
  std::vector<std::string> workers;
  std::vector<std::string> npu_workers;

  // What tells replicas apart: "unix:/run/tandem/gpu0.sock npu=unix:/run/tandem/npu0.sock".
  std::string key() const;
};

// As many of `workers` for each replica, in order, and of `npu_workers` one for each of the first.
// INVALID_ARGUMENT: they cannot be divided.  REQUIRES num_replicas > 0.
absl::StatusOr<std::vector<ReplicaWorkers>> DivideWorkers(
    const std::vector<std::string>& workers, const std::vector<std::string>& npu_workers,
    uint32_t num_replicas);

// A replica a line: its workers, with blanks between; npu=TARGET is an NPU worker.  Empty lines, and
// lines that begin with #, mean nothing.
// INVALID_ARGUMENT names the line: no worker, a worker twice, a malformed target; or no replica.
absl::StatusOr<std::vector<ReplicaWorkers>> ParseReplicas(const std::string& text);
// Of a file; also INVALID_ARGUMENT: it cannot be read.
absl::StatusOr<std::vector<ReplicaWorkers>> ReadReplicaFile(const std::string& path);

}  // namespace tandem::gateway
