// Runs one HTTP request on the engine and sends its answer.
//
// Like StreamReactor for gRPC: at most one write is under way.  Meanwhile the engine's updates are
// merged in the TokenStreams, and become the next write.  So a slow reader gets fewer and larger
// pieces, and the TokenStream ends the request of a reader that stalls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "services/gateway/api/answer_writer.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/service/served_model.h"

namespace tandem::gateway {

struct AnswerRunOptions {
  // Tokens that a reader may leave unread before its request ends.
  uint32_t max_unread_tokens = 4096;
  absl::Duration keep_alive_interval = absl::Seconds(10);
};

// Hands job.runs to the engine and returns; the answer completes `responder`.  If the engine
// refuses one of them, all are withdrawn.  A client that goes away has its runs cancelled. `model`:
// Borrowed; must outlive the request.
void StartAnswer(const ServedModel& model, ApiJob job, std::shared_ptr<HttpClient> client,
                 std::shared_ptr<HttpResponder> responder, const AnswerRunOptions& options);

}  // namespace tandem::gateway
