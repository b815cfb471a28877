// Answers one HTTP request for embeddings.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/model/embed_run.h"
#include "services/gateway/model/served_model.h"

namespace tandem::gateway {

// The engine's work for one HTTP request.
struct EmbedJob {
  std::vector<EngineRequest> runs;  // empty: no inputs
  // The body for a result that is OK.
  std::function<absl::StatusOr<std::string>(const EmbedResult&)> to_body;

  // Each run has a span of its own; the first has the request's.
  void SetOrigin(Api api, const RequestTrace& trace);
};

// Submits the runs to the engine and returns; the answer completes `responder`.  If the client goes
// away, its runs are cancelled.  `model`: Borrowed; must outlive the request.
void StartEmbedding(const ServedModel& model, EmbedJob job, std::shared_ptr<HttpClient> client,
                    const std::shared_ptr<HttpResponder>& responder);

// Replaces ParseEmbed's paths "inputs[2].text" and "inputs[2].tokens[1]" in an error by the
// client's: "input[2]", "input[2][1]"; without "[0]" if `num_inputs` is 1.
std::string NameEmbedInput(const absl::Status& status, std::string_view member, size_t num_inputs);

// The float32's bytes, little-endian, in base64.
std::string FloatsToBase64(std::span<const float> values);

}  // namespace tandem::gateway
