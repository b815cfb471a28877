// POST /v1/chat/completions: turns a body into engine requests and the writer of their answer.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/gateway/api/answer_writer.h"
#include "services/gateway/api/json.h"
#include "services/gateway/model/served_model.h"

namespace tandem::gateway {

// INVALID_ARGUMENT (a ParamError) names the wrong, missing or unsupported parameter;
// NOT_FOUND: another model; "context_length_exceeded" as in ParseChat.
absl::StatusOr<ApiJob> MakeChatJob(const Json& body, const ServedModel& model,
                                   const std::string& request_id);

}  // namespace tandem::gateway
