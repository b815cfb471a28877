// POST /v1/responses, without state: turns a body into an engine request and the writer of its
// answer.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/gateway/api/answer_writer.h"
#include "services/gateway/api/json.h"
#include "services/gateway/model/served_model.h"

namespace tandem::gateway {

// `input` is a text or a list of messages, calls of functions and their results, `instructions` the system message.  Members that need
// state (previous_response_id, conversation, store, background) are refused.  Errors as
// MakeChatJob's.
absl::StatusOr<ApiJob> MakeResponsesJob(const Json& body, const ServedModel& model,
                                        const std::string& request_id);

}  // namespace tandem::gateway
