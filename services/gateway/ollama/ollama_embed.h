// POST /api/embed and the older /api/embeddings: turn a body into engine requests and the writer of
// their answer.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/gateway/api/embed_answer.h"
#include "services/gateway/api/json.h"
#include "services/gateway/model/served_model.h"

namespace tandem::gateway {

// `input` is a text or a list of texts; without texts the answer has no embeddings.
// INVALID_ARGUMENT (a ParamError) names the wrong or unsupported member; NOT_FOUND: another model.
absl::StatusOr<EmbedJob> MakeOllamaEmbedJob(const Json& body, const ServedModel& model,
                                            const std::string& request_id);
// `prompt` is one text.
absl::StatusOr<EmbedJob> MakeOllamaEmbeddingsJob(const Json& body, const ServedModel& model,
                                                 const std::string& request_id);

}  // namespace tandem::gateway
