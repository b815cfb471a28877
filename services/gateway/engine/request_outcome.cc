#include "services/gateway/engine/request_outcome.h"

namespace tandem::gateway {

RequestOutcome OutcomeOf(const RequestReport& report) {
  if (report.status.ok()) {
    return report.reason == v1::FINISH_REASON_STOP ? RequestOutcome::kStop
                                                   : RequestOutcome::kLength;
  }
  if (absl::IsCancelled(report.status)) return RequestOutcome::kCancelled;
  if (absl::IsDeadlineExceeded(report.status)) return RequestOutcome::kDeadline;
  return RequestOutcome::kFailed;
}

std::string_view OutcomeName(RequestOutcome outcome) {
  constexpr std::string_view kNames[kNumRequestOutcomes] = {"stop",     "length",  "cancelled",
                                                            "deadline", "refused", "failed"};
  return kNames[static_cast<int>(outcome)];
}

std::string_view ApiName(Api api) {
  constexpr std::string_view kNames[kNumApis] = {"grpc", "rest", "openai", "ollama", "anthropic"};
  return kNames[static_cast<int>(api)];
}

}  // namespace tandem::gateway
