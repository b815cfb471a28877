#include "services/gateway/metrics/gateway_metrics.h"

namespace tandem::gateway {

std::vector<MetricSpec> GatewayMetrics::All() {
  return {kInfo,
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
          kTokens,
          kDuration,
          kFirstToken,
          kTokenTime,
          kQueueTime,
          kPromptTokens,
          kCompletionTokens,
          kSteps,
          kStepsFailed,
          kStepsQueued,
          kStepTime,
          kStepRowsTotal,
          kStepRows,
          kGuesses,
          kCalls,
          kRoundTrip,
          kWorkerTime,
          kDeviceTime,
          kKvBlocks,
          kKvBlocksUsed,
          kKvBlocksCached,
          kKvBlocksEvicted,
          kPrefixTokens,
          kPreemptions,
          kHttpConnections,
          kHttpRequests};
}

}  // namespace tandem::gateway
