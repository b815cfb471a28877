#include "services/gateway/engine/request_log.h"

#include <vector>

#include "absl/status/status.h"
#include "services/common/base/logging.h"
#include "services/gateway/engine/request_outcome.h"

namespace tandem::gateway {
namespace {

LogValue Seconds(absl::Duration duration) { return LogValue(absl::ToDoubleSeconds(duration), 3); }

}  // namespace

void RequestLog::RequestEnded(const RequestReport& report) {
  const EngineRequest& request = *report.request;
  std::vector<LogField> fields = {{"request_id", request.request_id},
                                  {"api", std::string(ApiName(request.api))},
                                  {"outcome", std::string(OutcomeName(OutcomeOf(report)))},
                                  {"prompt_tokens", request.prompt.size()},
                                  {"completion_tokens", report.completion_tokens},
                                  {"seconds", Seconds(report.end - report.submitted)}};
  if (report.started != absl::InfiniteFuture()) {
    fields.emplace_back("cached_tokens", report.cached_tokens);
    fields.emplace_back("queue_seconds", Seconds(report.started - report.submitted));
  }
  if (report.first_token != absl::InfiniteFuture()) {
    fields.emplace_back("first_token_seconds", Seconds(report.first_token - report.submitted));
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
