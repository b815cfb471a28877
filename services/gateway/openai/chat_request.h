// POST /v1/chat/completions: a body to engine requests and the writer of their answer.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/gateway/api/answer_writer.h"
#include "services/gateway/api/json.h"
#include "services/gateway/service/served_model.h"

namespace tandem::gateway {

// INVALID_ARGUMENT (a ParamError) names the parameter that is wrong, missing or not supported;
// NOT_FOUND: another model; "context_length_exceeded" as in ParseChat.
absl::StatusOr<ApiJob> MakeChatJob(const Json& body, const ServedModel& model,
                                   const std::string& request_id);

}  // namespace tandem::gateway
