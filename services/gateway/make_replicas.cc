#include "services/gateway/make_replicas.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/plan/drafters.h"
#include "services/gateway/make_drafters.h"

namespace tandem::gateway {

namespace {

absl::StatusOr<ExecutorOptions> OptionsOf(const GatewayFlags& flags,
                                          const ReplicaWorkers& replica) {
  ExecutorOptions options = flags.executor;
  options.worker_targets = replica.workers;
  options.npu_targets = replica.npu_workers;
  // NPUs have float16 alone.
  const DType kv_dtype = replica.layers_on_npu ? DType::kF16 : options.policy.kv_dtype;
  options.policy.kv_dtype = replica.kv_dtype.value_or(kv_dtype);
  options.policy.layers_on_npu = replica.layers_on_npu;
  if (!replica.layers_on_npu) return options;
  TANDEM_RETURN_IF_ERROR(RequireNpuForPrompts(options.policy.npu));
  // Beside the plan that its worker has of another replica, whose KV comes first.
  options.plan_id = "prompts";
  options.yields = true;
  return options;
}

}  // namespace

absl::StatusOr<ReplicaStarts> MakeReplicas(const GatewayFlags& flags,
                                           const SetExtraReplica& set_extra) {
  std::vector<ReplicaWorkers> replicas = flags.replicas;
  if (!flags.replica_file.empty()) {
    TANDEM_ASSIGN_OR_RETURN(replicas, ReadReplicaFile(flags.replica_file));
    for (const ReplicaWorkers& replica : replicas) {
      TANDEM_RETURN_IF_ERROR(CheckWorkers(flags, replica));
    }
  }
  TANDEM_ASSIGN_OR_RETURN(const DrafterSet drafters,
                          ChooseDrafters(flags.speculate, flags.draft.model_name));
  const bool any_on_npu = std::ranges::any_of(replicas, &ReplicaWorkers::layers_on_npu);
  if (any_on_npu && (flags.draft.device == "npu" || flags.draft.device == "emulate")) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--draft-device %s: the NPU computes prompts", flags.draft.device));
  }
  ReplicaStarts starts{.all = {},
                       .change = flags.replicas_change() || flags.auto_prompts,
                       .shows_lone = !flags.auto_prompts};
  for (const ReplicaWorkers& replica : replicas) {
    TANDEM_ASSIGN_OR_RETURN(ExecutorOptions options, OptionsOf(flags, replica));
    if (any_on_npu && replica.npu_workers.empty()) options.policy.npu = NpuPolicy::kOff;
    // One that comes may share a worker with one that leaves.
    if (flags.replicas_change()) options = WithNewPlanId(std::move(options));
    ReplicaStart& start = starts.all.emplace_back();
    // Where prompts are computed few tokens are decoded.
    if (replica.role != ReplicaRole::kPrompts) {
      TANDEM_ASSIGN_OR_RETURN(start.make_drafters, DraftersFor(drafters, flags.draft, options));
    }
    if (flags.auto_prompts) {
      const ReplicaWorkers prompts = BesideNpu(replica);
      TANDEM_ASSIGN_OR_RETURN(const ExecutorOptions apart, OptionsOf(flags, prompts));
      options.prompts_apart = MakePromptsApart(apart, prompts.key(), set_extra);
    }
    start.key = replica.key();
    start.role = replica.role;
    start.start = [options](const Executor::Progress& progress) {
      return Executor::Start(options, progress);
    };
  }
  return starts;
}

}  // namespace tandem::gateway
