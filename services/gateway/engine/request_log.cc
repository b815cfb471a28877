#include "services/gateway/engine/request_log.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "services/common/base/logging.h"
#include "services/gateway/engine/request_outcome.h"

namespace tandem::gateway {
namespace {

std::string SecondsText(absl::Duration duration) {
  return absl::StrFormat("%.3f", absl::ToDoubleSeconds(duration));
}

}  // namespace

void RequestLog::RequestEnded(const RequestReport& report) {
  const EngineRequest& request = *report.request;
  std::vector<LogField> fields = {
      {"request_id", request.request_id},
      {"api", std::string(ApiName(request.api))},
      {"outcome", std::string(OutcomeName(OutcomeOf(report)))},
      {"prompt_tokens", absl::StrFormat("%d", request.prompt.size())},
      {"completion_tokens", absl::StrFormat("%d", report.completion_tokens)},
      {"seconds", SecondsText(report.end - report.submitted)}};
  if (report.started != absl::InfiniteFuture()) {
    fields.emplace_back("cached_tokens", absl::StrFormat("%d", report.cached_tokens));
    fields.emplace_back("queue_seconds", SecondsText(report.started - report.submitted));
  }
  if (report.first_token != absl::InfiniteFuture()) {
    fields.emplace_back("first_token_seconds", SecondsText(report.first_token - report.submitted));
  }
  if (!report.status.ok()) {
    fields.emplace_back("code", std::string(absl::StatusCodeToString(report.status.code())));
  }
  if (request.trace.own.sampled) {
    fields.emplace_back("trace_id", FormatTraceId(request.trace.own.trace_id));
  }
  Log(LogLevel::kInfo, "request", fields);
}

}  // namespace tandem::gateway
