#include "services/gateway/model/prepare_constraint.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/gateway/tool_calls/call_schema.h"

namespace tandem::gateway {
ConstraintWait PrepareConstraint(
    const ServedModel& model, std::vector<EngineRequest> requests,
    std::function<void(absl::StatusOr<std::vector<EngineRequest>>)> next) {
  if (requests.empty() || requests.front().constraint_source == nullptr) {
    next(std::move(requests));
    return {};
  }
  const auto source = requests.front().constraint_source;
  const constraint::ConstraintCaller caller{.tenant = requests.front().tenant.name,
                                            .deadline = requests.front().deadline};
  auto shared = std::make_shared<std::vector<EngineRequest>>(std::move(requests));
  const auto done = [&model, shared,
                     next = std::move(next)](const constraint::ConstraintCache::Result& compiled) {
    if (!compiled.ok()) {
      const absl::Status status = NameSchemaPart(compiled.status());
      for (const EngineRequest& request : *shared) {
        model.replicas().ReportRefused(request.api, status);
      }
      return next(status);
    }
    for (EngineRequest& request : *shared) {
      request.constraint = *compiled;
      request.constraint_source = nullptr;
    }
    next(std::move(*shared));
  };
  return {model.constraints(), model.constraints().Get(*source, done, caller)};
}

absl::Status NameConstraintField(const absl::Status& status, const std::string& field) {
  const std::string message(status.message());
  const bool named =
      field.empty() || message.starts_with("tools[") || message.starts_with("images[");
  if (named || !absl::IsInvalidArgument(status)) return status;
  return absl::InvalidArgumentError(absl::StrFormat("%s: %s", field, message));
}

}  // namespace tandem::gateway
