// POST /v1/messages and /v1/messages/count_tokens: bodies to engine requests.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/gateway/api/answer_writer.h"
#include "services/gateway/api/json.h"
#include "services/gateway/model/served_model.h"

namespace tandem::gateway {

// INVALID_ARGUMENT (a ParamError) names the wrong, missing or unsupported member; NOT_FOUND: another
// model; "context_length_exceeded" as in ParseChat.
absl::StatusOr<ApiJob> MakeMessagesJob(const Json& body, const ServedModel& model,
                                       const std::string& request_id);

// Tokens of the prompt that the body gives, tools included.  Errors as MakeMessagesJob's.
absl::StatusOr<size_t> CountMessageTokens(const Json& body, const ServedModel& model);

}  // namespace tandem::gateway
