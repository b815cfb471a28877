// Flags of tandem-gateway: its workers, and what each of them does.
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/plan/planner.h"
#include "services/common/rpc/server.h"
#include "services/common/rpc/tls_flags.h"
#include "services/common/rpc/worker_target.h"
#include "services/gateway/gateway_flags.h"

namespace tandem::gateway {
namespace {

// Most bytes of one copy of KV between replicas.  Steps wait for a copy, so it should be short beside
// them.
constexpr uint64_t kKvAreaBytes = uint64_t{16} << 20;

absl::Status CheckNpuPrompts(GatewayFlags& flags) {
  const std::pair<const char*, bool> others[] = {
      {"--replica-file: write layers=npu role=prompts on a line", !flags.replica_file.empty()},
      {"--replica-names: attention alone does not cross hosts", !flags.replica_names.empty()},
      {"--prompt-replicas: they are for the same", flags.num_prompt_replicas > 0},
      {"--out-on-npu: the NPU has all layers", flags.executor.policy.out_on_npu},
      {"--layers: the NPU has all layers of prompts", !flags.layers.empty()}};
  for (const auto& [what, given] : others) {
    if (!given) continue;
    return absl::InvalidArgumentError(absl::StrFormat("--npu-prompts and %s", what));
  }
  return RequireNpuForPrompts(flags.executor.policy.npu);
}

// Whether a replica for prompts, on the NPU, may come beside the one that there is.
bool MayHaveAutoPrompts(const GatewayFlags& flags) {
  const ExecutorOptions& executor = flags.executor;
  const bool alone = !flags.replicas_change() && flags.num_replicas == 1 && !flags.npu_prompts;
  const bool free = flags.draft.device != "npu" && flags.layers.empty() &&
                    !executor.policy.out_on_npu && flags.prefix_cache != "off";
  return executor.policy.npu == NpuPolicy::kAuto && alone && free &&
         DivideBesideNpu(executor.worker_targets, executor.npu_targets, 1).ok();
}

// One way to name the workers is given, and nothing that does not go with it.
absl::Status CheckWaysToNameWorkers(const GatewayFlags& flags) {
  const ExecutorOptions& executor = flags.executor;
  const bool by_flags = !executor.worker_targets.empty() || !executor.npu_targets.empty();
  const bool by_file = !flags.replica_file.empty(), by_names = !flags.replica_names.empty();
  if (by_flags + by_file + by_names != 1) {
    return absl::InvalidArgumentError(
        "give --worker for each worker, or --replica-file with the workers of each replica, or "
        "--replica-names");
  }
  if (by_flags) return absl::OkStatus();
  if (flags.num_replicas > 1) {
    return absl::InvalidArgumentError(
        by_file ? "--replicas: --replica-file has a line for each replica"
                : "--replicas: --replica-names has a worker for each replica");
  }
  if (flags.num_prompt_replicas > 0) {
    return absl::InvalidArgumentError(
        by_file ? "--prompt-replicas: with --replica-file, write role=prompts on their lines"
                : "--prompt-replicas: replicas of --replica-names are equal");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FinishWorkerFlags(GatewayFlags& flags) {
  ExecutorOptions& executor = flags.executor;
  TANDEM_RETURN_IF_ERROR(CheckWaysToNameWorkers(flags));
  TANDEM_RETURN_IF_ERROR(CheckTlsFiles(executor.tls));
  if (flags.npu_prompts) TANDEM_RETURN_IF_ERROR(CheckNpuPrompts(flags));
  if (flags.replicas_change()) {
    if (!flags.replica_names.empty()) {
      flags.found.emplace(flags.replica_names);
      flags.found->Look();
      flags.replicas = flags.found->replicas();
    } else {
      TANDEM_ASSIGN_OR_RETURN(flags.replicas, ReadReplicaFile(flags.replica_file));
    }
    // What does not belong to one replica, such as pictures, may be on any worker.
    for (const ReplicaWorkers& replica : flags.replicas) {
      executor.worker_targets.insert(executor.worker_targets.end(), replica.workers.begin(),
                                     replica.workers.end());
    }
  } else if (flags.npu_prompts) {
    TANDEM_ASSIGN_OR_RETURN(
        flags.replicas,
        DivideBesideNpu(executor.worker_targets, executor.npu_targets, flags.num_replicas));
  } else {
    TANDEM_ASSIGN_OR_RETURN(flags.replicas,
                            DivideWorkers(executor.worker_targets, executor.npu_targets,
                                          flags.num_replicas, flags.num_prompt_replicas));
  }
  flags.auto_prompts = MayHaveAutoPrompts(flags);
  if (flags.auto_prompts) flags.replicas[0].role = ReplicaRole::kDecode;
  bool any_remote = false;
  for (const ReplicaWorkers& replica : flags.replicas) {
    TANDEM_RETURN_IF_ERROR(CheckWorkers(flags, replica));
    for (const std::string& text : replica.workers) {
      TANDEM_ASSIGN_OR_RETURN(const WorkerTarget target, ParseWorkerTarget(text));
      any_remote = any_remote || target.remote;
    }
  }
  const bool several = flags.replicas_change() || flags.num_replicas > 1;
  // A replica may leave, or get a role.
  const bool phases = flags.num_prompt_replicas > 0 || flags.npu_prompts || flags.auto_prompts;
  executor.kv_area_bytes = flags.replicas_change() || phases ? kKvAreaBytes : 0;
  if (several && !flags.layers.empty()) {
    return absl::InvalidArgumentError(
        "--layers and replicas: layers are placed by memory in each replica; leave out --layers");
  }
  for (const std::string& text : flags.layers) {
    TANDEM_ASSIGN_OR_RETURN(executor.policy.layers.emplace_back(), ParseLayerRange(text));
  }
  // Workers of a replica share its layers, unless another number is given.
  const int by_default = any_remote || several ? 0 : 1;
  executor.policy.num_gpus =
      static_cast<uint32_t>(flags.num_gpus < 0 ? by_default : flags.num_gpus);
  return absl::OkStatus();
}

absl::Status CheckWorkers(const GatewayFlags& flags, const ReplicaWorkers& workers) {
  const bool by_file = !flags.replica_file.empty();
  if (workers.role != ReplicaRole::kBoth && flags.prefix_cache == "off") {
    return absl::InvalidArgumentError(
        "--prefix-cache off: replicas for prompts hand the KV to others through their prefix "
        "cache");
  }
  const std::string where = by_file                        ? flags.replica_file + ":"
                            : !flags.replica_names.empty() ? "--replica-names"
                                                           : "--worker";
  for (const std::string& text : workers.npu_workers) {
    TANDEM_ASSIGN_OR_RETURN(const WorkerTarget target, ParseWorkerTarget(text));
    if (!target.remote) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s %s: attention alone does not cross hosts; name a worker of this machine",
        by_file ? where + " npu" : "--npu-worker", text));
  }
  for (const std::string& text : workers.workers) {
    TANDEM_ASSIGN_OR_RETURN(const WorkerTarget target, ParseWorkerTarget(text));
    if (target.remote && !target.tls && !flags.allow_clear && !IsLoopback(target.address)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s %s: is neither encrypted nor authenticated; use tls:// with --tls-cert, "
          "--tls-key and --tls-ca, or --allow-remote where the network itself sees to that",
          where, text));
    }
    if (target.tls && !flags.executor.tls.given()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s %s: needs --tls-cert, --tls-key and --tls-ca", where, text));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::gateway
