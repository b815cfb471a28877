// POST /api/chat and /api/generate: turn a body into an engine request and the writer of its
// answer.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/gateway/api/answer_writer.h"
#include "services/gateway/api/json.h"
#include "services/gateway/model/served_model.h"

namespace tandem::gateway {

// A request without text ("load the model") is a job without runs; the writer still answers it.
// INVALID_ARGUMENT (a ParamError) names the wrong or unsupported member; NOT_FOUND: another model.
absl::StatusOr<ApiJob> MakeOllamaChatJob(const Json& body, const ServedModel& model,
                                         const std::string& request_id);
absl::StatusOr<ApiJob> MakeOllamaGenerateJob(const Json& body, const ServedModel& model,
                                             const std::string& request_id);

// Whether `name` means the served model (ModelNames).  INVALID_ARGUMENT if it is empty; NOT_FOUND.
absl::Status CheckOllamaName(const std::string& name, const ServedModel& model);

}  // namespace tandem::gateway
