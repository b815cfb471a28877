// Runs one HTTP request on the engine and sends its answer.
//
// Like StreamRun for tandem.v1: at most one write is under way.  Meanwhile the TokenStreams merge
// the engine's updates; the next write takes all of them.  So a slow reader gets fewer and larger
// pieces, and the TokenStream ends the request of a reader that stalls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "services/gateway/api/answer_writer.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/model/served_model.h"

namespace tandem::gateway {

struct AnswerRunOptions {
  // Tokens that a reader may leave unread before its request ends; of requests with many
  // log-probabilities, fewer (MaxUnreadTokens).
  uint32_t max_unread_tokens = 4096;
  absl::Duration keep_alive_interval = absl::Seconds(10);
};

// Compiles the constraint of job.runs, if they have one, submits them to the engine and returns,
// perhaps before they are submitted; the answer completes `responder`.  If the engine refuses one
// run, all are cancelled.  If the client goes away, its runs are cancelled.  job.logprobs has been
// checked (BoundLogprobs).  `model`:
// Borrowed; must outlive the request.
void StartAnswer(const ServedModel& model, ApiJob job, std::shared_ptr<HttpClient> client,
                 std::shared_ptr<HttpResponder> responder, const AnswerRunOptions& options);

}  // namespace tandem::gateway
