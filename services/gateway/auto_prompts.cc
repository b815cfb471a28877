#include "services/gateway/auto_prompts.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/executor/placement_trial.h"

namespace tandem::gateway {
namespace {

// For a trial: a worker that does not come in this time is not used.
constexpr absl::Duration kTrialWait = absl::Seconds(10);

absl::StatusOr<PlacementCosts> Measure(const ExecutorOptions& prompts, Executor& decoder,
                                       const ReferenceLoad& load) {
  ExecutorOptions options = WithNewPlanId(prompts);
  options.step_log = nullptr;
  options.worker_wait = kTrialWait;
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Executor> executor, Executor::Start(options, nullptr));
  const absl::Cleanup unload = [&executor] { executor->Unload(); };
  TANDEM_ASSIGN_OR_RETURN(PlacementCosts costs,
                          TryPlacement(*executor, load, prompts.favour == Favour::kEnergy));
  for (Executor* copier : {executor.get(), &decoder}) {
    TANDEM_ASSIGN_OR_RETURN(const double seconds,
                            TimeKvCopy(*copier, costs.prompt_rows, copier == &decoder));
    costs.prompt.other += seconds;
  }
  return costs;
}

}  // namespace

std::shared_ptr<PromptsApart> MakePromptsApart(ExecutorOptions prompts, std::string key,
                                               SetExtraReplica set_extra) {
  auto apart = std::make_shared<PromptsApart>();
  apart->policy = prompts.policy;
  apart->steps = std::make_shared<StepLog>();
  prompts.step_log = apart->steps;
  apart->measure = [prompts](Executor& decoder, const ReferenceLoad& load) {
    return Measure(prompts, decoder, load);
  };
  apart->use = [prompts, key = std::move(key), set_extra = std::move(set_extra)](bool use) {
    std::optional<ReplicaStart> start;
    if (use) {
      start.emplace();
      start->key = key;
      start->role = ReplicaRole::kPrompts;
      start->start = [prompts](const Executor::Progress& progress) {
        // One that leaves may still be on the same workers.
        return Executor::Start(WithNewPlanId(prompts), progress);
      };
    }
    set_extra(std::move(start));
  };
  return apart;
}

}  // namespace tandem::gateway
