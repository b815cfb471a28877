// Admits requests to the engine and queues them for its thread.
//
// The status of a request that is refused for load says when to try again: when there will be room,
// by a forecast (load_forecast.h).  By the same forecast, deadlines that cannot be met are refused.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/gateway/engine/load_forecast.h"
#include "services/gateway/engine/neighbours.h"
#include "services/gateway/engine/request_run.h"
#include "services/gateway/engine/token_stream.h"
#include "services/gateway/scheduler/queue_places.h"

namespace tandem::gateway {

// A request on its way to the engine's thread.
struct SubmittedRequest {
  uint64_t id = 0;  // increasing, never used twice
  EngineRequest request;
  std::shared_ptr<TokenStream> stream;
  absl::Time submitted;
  std::unique_ptr<MovedRequest> moved;  // from another engine, in place of the three before
};

// Numbers of requests, each given once.  Thread-safe.
class RequestIds {
 public:
  uint64_t Next() { return last_.fetch_add(1, std::memory_order_relaxed) + 1; }

 private:
  std::atomic<uint64_t> last_{0};
};

struct AdmissionOptions {
  uint64_t max_requests = 1;  // of one tenant alone, waiting and running (QueuePlaces)
  uint64_t max_tokens = 0;    // of their prompts together; 0: any number
  uint32_t max_running = 1;   // sequences at once
  uint32_t max_rows = 512;    // in a step
  // Of all engines whose requests may move; null: this one's alone.
  std::shared_ptr<RequestIds> ids;
};

// A request holds a place from Submit to Ended.  Thread-safe.
class Admission {
 public:
  explicit Admission(const AdmissionOptions& options)
      : places_(options.max_requests, options.max_tokens),
        ids_(options.ids != nullptr ? options.ids : std::make_shared<RequestIds>()),
        max_rows_(options.max_rows),
        forecast_(options.max_running, options.max_rows) {}

  // RESOURCE_EXHAUSTED: the queue is full, or the deadline cannot be met behind the requests that
  // there are; with RetryInfo where steps have been measured.  DEADLINE_EXCEEDED: the deadline
  // could not be met even alone.  UNAVAILABLE: draining or stopped.  INVALID_ARGUMENT: an empty
  // prompt, or one that leaves no room for a token.  After an error `request` is as it was.
  absl::Status Submit(EngineRequest&& request, std::shared_ptr<TokenStream> stream);
  // What Submit would say of its place now; nothing is taken.
  absl::Status CheckPlace(const EngineRequest& request) const;
  // Takes a request of another engine, beyond the limits.  False, and `moved` is as it was: stopped,
  // closed, or the request has more tokens than fit here.
  bool Adopt(std::unique_ptr<MovedRequest>& moved);
  // Seconds until the end of one more request.  `cached`: tokens of its prompt that need not be
  // computed.  nullopt: no step was measured yet.
  std::optional<double> PredictEnd(const EngineRequest& request, uint32_t cached) const;
  // Refuses new requests and waits up to `patience` for the admitted ones to end.
  void Drain(absl::Duration patience);
  // From now on Adopt refuses.
  void Close();
  // Refuses new requests and ends the engine.  The `reason` of the first call is end_reason().
  void Stop(absl::Status reason);

  // `tokens`: of prompt and answer together.
  void SetMaxSequenceLen(uint32_t tokens);
  // Waits up to `patience` until there are requests that have not ended, or Wake; false after Stop.
  bool WaitForRequest(absl::Duration patience);
  // Ends a wait, or the next one.
  void Wake();
  // The requests submitted since the last call, in order.
  std::vector<SubmittedRequest> Take();
  // Frees the place of a request that has ended.
  void Ended(uint64_t id);
  // A request is being handed to another engine, and may come back from there at once: its place stays
  // taken until Left, or until Stays takes its departure back.
  RequestSize Leaves(uint64_t id);
  void Left(const RequestSize& size);
  void Stays(uint64_t id, const RequestSize& size);

  // For the forecast: a step took so long, counted from when the device could begin it; how far
  // the running requests are, and how many sequences can run at once; an answer reached its end.
  void StepTook(uint32_t decode_rows, uint32_t prompt_rows, absl::Duration time);
  void Progress(const std::vector<RequestProgress>& running, uint32_t places);
  // Tokens that a decode row leads to, with accepted guesses: of late.
  void SetPace(double tokens);
  void AnswerEnded(uint32_t tokens, bool by_limit);
  // StepCosts::PromptRowsWithin, up to the rows of a step.
  uint32_t PromptRowsWithin(uint32_t decode_rows, absl::Duration time) const;

  bool draining() const;
  bool stopped() const;
  // The status of requests that are refused now, and of those that end with the engine.
  absl::Status end_reason() const;
  // Requests admitted and not ended.
  uint32_t num_requests() const;
  uint32_t max_sequence_len() const;

 private:
  RequestSize SizeOf(const EngineRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The ends to come.
  const std::vector<LoadForecast::End>& Ends() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // From now on, for seconds of the forecast.
  absl::Duration FromNow(double seconds, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RefuseFull(const absl::Status& full, const RequestSize& size, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckDeadline(const RequestSize& size, absl::Time deadline, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CondVar work_;   // a request was admitted, or Stop called
  CondVar ended_;  // num_requests fell
  std::vector<SubmittedRequest> submitted_ ABSL_GUARDED_BY(mutex_);
  QueuePlaces places_ ABSL_GUARDED_BY(mutex_);  // of all that have not ended, by tenant
  const std::shared_ptr<RequestIds> ids_;
  const uint32_t max_rows_;
  LoadForecast forecast_ ABSL_GUARDED_BY(mutex_);
  absl::Time progress_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Duration last_step_ ABSL_GUARDED_BY(mutex_);
  // The forecast's, until a request ends or gets on.
  mutable std::optional<std::vector<LoadForecast::End>> ends_ ABSL_GUARDED_BY(mutex_);
  uint32_t max_sequence_len_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_reason_ ABSL_GUARDED_BY(mutex_) =
      absl::UnavailableError("the gateway is shutting down");
};

}  // namespace tandem::gateway
