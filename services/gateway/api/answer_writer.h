// Turns what the engine decides into the bytes of one HTTP API's answer.
//
//   stream:  Begin, then Update and End of each run as they come, Finish   (or Fail)
//   whole:   Update and End of each run, Finish, which writes the body     (or the API's error)
//
// A request may run several sequences (choices, prompts); `run` counts them from 0.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "services/gateway/api/answer_logprobs.h"
#include "services/gateway/api/constraint_member.h"
#include "services/gateway/engine/request_run.h"
#include "services/gateway/engine/token_stream.h"

namespace tandem::gateway {

// Single-thread.  Every function appends to `out`.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  // Whether events are written as they come.  If not, all but Finish write nothing.
  virtual bool streams() const = 0;
  // Content type of a stream; a whole answer is JSON.
  virtual std::string_view content_type() const { return "text/event-stream"; }
  // Bytes that clients ignore, sent to keep the connection alive; empty: the format has none.
  virtual std::string_view keep_alive() const { return ": keep-alive\n\n"; }

  // The error that this API's clients get for `status`, before the first byte.
  virtual absl::Status TranslateError(const absl::Status& status) const { return status; }

  virtual void Begin(std::string& out) = 0;
  virtual void Update(size_t run, const StreamUpdate& update, std::string& out) = 0;
  // `end.status` is OK.
  virtual void End(size_t run, const StreamEnd& end, std::string& out) = 0;
  virtual void Finish(std::string& out) = 0;
  // The answer fails after a stream has started: appends the error to the stream.
  virtual void Fail(const absl::Status& status, std::string& out) = 0;
};

// The engine's work for one HTTP request.
struct ApiJob {
  std::vector<EngineRequest> runs;
  std::unique_ptr<AnswerWriter> writer;
  // For errors about what the answer must look like.
  ConstraintNames constraint_names = {};
  AnswerLogprobs logprobs = {};

  // Each run has a span of its own; the first has the request's.
  void SetOrigin(Api api, const RequestTrace& trace) {
    for (size_t i = 0; i < runs.size(); ++i) {
      runs[i].api = api;
      runs[i].trace = i == 0 ? trace : trace.Sibling();
    }
  }
};

}  // namespace tandem::gateway
