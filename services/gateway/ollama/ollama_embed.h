// POST /api/embed and the older /api/embeddings: bodies to engine requests and the writer of their
// answer.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/gateway/api/embed_answer.h"
#include "services/gateway/api/json.h"
#include "services/gateway/service/served_model.h"

namespace tandem::gateway {

// `input`, a text or many; without any the answer has none.  INVALID_ARGUMENT (a ParamError) names
// what is wrong or not done here; NOT_FOUND: another model.
absl::StatusOr<EmbedJob> MakeOllamaEmbedJob(const Json& body, const ServedModel& model,
                                            const std::string& request_id);
// `prompt`, one text.
absl::StatusOr<EmbedJob> MakeOllamaEmbeddingsJob(const Json& body, const ServedModel& model,
                                                 const std::string& request_id);

}  // namespace tandem::gateway
