// Which workers each replica has: by --replicas, or by the file of --replica-file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/tensor/dtype.h"
#include "services/gateway/replicas/replica_role.h"

namespace tandem::gateway {

// Targets as ParseWorkerTarget takes them.
struct ReplicaWorkers {
  std::vector<std::string> workers;
  std::vector<std::string> npu_workers;
  ReplicaRole role = ReplicaRole::kBoth;
  std::optional<DType> kv_dtype;  // nullopt: as the gateway's flags say
  bool layers_on_npu = false;     // its NPUs run all layers, and `workers` Embed and Head alone

  // What tells replicas apart: "unix:/run/tandem/gpu0.sock npu=unix:/run/tandem/npu0.sock role=prompts".
  std::string key() const;
};

// As many of `workers` for each replica, in order, and of `npu_workers` one for each of the first.
// The first `num_prompts` of them are for prompts, the others then for decoding.
// INVALID_ARGUMENT: they cannot be divided, or none is left for decoding.  REQUIRES num_replicas > 0.
absl::StatusOr<std::vector<ReplicaWorkers>> DivideWorkers(
    const std::vector<std::string>& workers, const std::vector<std::string>& npu_workers,
    uint32_t num_replicas, uint32_t num_prompts = 0);

// The same, and one more whose NPUs compute prompts, whole, for those of DivideWorkers.  It shares the
// workers of the first that has one on this machine.  INVALID_ARGUMENT as DivideWorkers; or there is no
// such worker, or no NPU's.
absl::StatusOr<std::vector<ReplicaWorkers>> DivideBesideNpu(
    const std::vector<std::string>& workers, const std::vector<std::string>& npu_workers,
    uint32_t num_replicas);

// The replica whose NPUs compute prompts, whole, for `decode`, with Embed and Head on its workers.
ReplicaWorkers BesideNpu(const ReplicaWorkers& decode);

// A replica a line: its workers, with blanks between; npu=TARGET is an NPU worker, role=prompts or
// role=decode what it is for, kv=f16 or kv=q8_0 its KV cache, layers=npu says that its NPUs run all
// layers.  Empty lines, and lines that begin with #, mean nothing.
// INVALID_ARGUMENT names the line: no worker, a worker twice (but with layers=npu it may share those of
// another line), a malformed word, layers=npu without an NPU or role=prompts; or no replica, or none that
// decodes.
absl::StatusOr<std::vector<ReplicaWorkers>> ParseReplicas(const std::string& text);
// Of a file; also INVALID_ARGUMENT: it cannot be read.
absl::StatusOr<std::vector<ReplicaWorkers>> ReadReplicaFile(const std::string& path);

}  // namespace tandem::gateway
