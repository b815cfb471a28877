// POST /v1/completions: turns a body into engine requests and the writer of their answer.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/gateway/api/answer_writer.h"
#include "services/gateway/api/json.h"
#include "services/gateway/model/served_model.h"

namespace tandem::gateway {

// `prompt` is a text, a list of texts, a list of token ids or a list of such lists.  Each prompt
// gets n choices.  Errors as MakeChatJob's.
absl::StatusOr<ApiJob> MakeCompletionJob(const Json& body, const ServedModel& model,
                                         const std::string& request_id);

}  // namespace tandem::gateway
