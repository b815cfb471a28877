#include "services/gateway/metrics/gateway_metrics.h"

#include <algorithm>

#include "services/gateway/scheduler/scheduler_counters.h"

namespace tandem::gateway {

std::vector<MetricSpec> GatewayMetrics::All() {
  std::vector<MetricSpec> specs = {kInfo,
                                   kReady,
                                   kPlacement,
                                   kPlanEpoch,
                                   kWorkerUp,
                                   kWorkerState,
                                   kRecoveries,
                                   kModelFileChanged,
                                   kModelReloads,
                                   kRequests,
                                   kErrors,
                                   kRunning,
                                   kWaiting,
                                   kWaitingLimit,
                                   kDuration,
                                   kFirstToken,
                                   kTokenTime,
                                   kQueueTime,
                                   kPromptTokens,
                                   kCompletionTokens,
                                   kCompilations,
                                   kCompileTime,
                                   kConstraintHits,
                                   kCompileWaiting,
                                   kConstraintBytes,
                                   kMaskTime,
                                   kSteps,
                                   kStepsFailed,
                                   kStepsQueued,
                                   kStepTime,
                                   kStepRowsTotal,
                                   kStepRows,
                                   kDraftTokens,
                                   kDraftSeconds,
                                   kCalls,
                                   kRoundTrip,
                                   kWorkerTime,
                                   kDeviceTime,
                                   kKvBlocks,
                                   kKvBlocksUsed,
                                   kKvBlocksCached,
                                   kKvBlocksEvicted,
                                   kHttpConnections,
                                   kHttpRequests,
                                   kPlacementMoves,
                                   kReplicaUp,
                                   kReplicaRunning,
                                   kReplicaWaiting,
                                   kReplicaRequests,
                                   kReplicaMoved,
                                   kReplicaHandedOver,
                                   kReplicaKvBytes,
                                   kReplicaKvUsed};
  for (const SchedulerCounter& counter : kSchedulerCounters) {
    const MetricSpec* const metric = counter.metric;
    if (metric == nullptr) continue;
    const bool listed = std::any_of(specs.begin(), specs.end(), [&](const MetricSpec& spec) {
      return spec.name == metric->name;
    });
    if (!listed) specs.push_back(*metric);
  }
  return specs;
}

}  // namespace tandem::gateway
