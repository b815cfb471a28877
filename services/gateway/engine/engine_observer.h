// The engine's reports, for metrics and traces.
//
//   RequestAccepted -> RequestStarted -> RequestFirstToken -> RequestEnded     of one request
//   StepBegins -> StepEnded   of steps in the order in which they ran, but for the end of those
//                             lost with the one before
//
// A request that ends earlier skips the calls between.  A preempted or recomputed request keeps its
// number, also where it goes on in another engine (neighbours.h): that one reports its end.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/common/plan/planner.h"
#include "services/common/trace/trace_context.h"
#include "services/gateway/engine/request_run.h"
#include "services/gateway/executor/executor.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// A request's number among the engines that serve a model: never reused.
using RequestNumber = uint64_t;

// Rows of one request in a step.
struct RequestRows {
  RequestNumber request = 0;
  uint32_t first_position = 0;
  uint32_t num_rows = 0;
  // One row, of a token of the answer, with everything before it in the KV cache, and rows for
  // guesses after it.  Otherwise the rows are of the prompt, or of tokens that are computed again.
  bool decode = false;
  uint32_t num_drafted = 0;  // of num_rows, those for guesses of drafters
};

// A step's number.
struct StepKey {
  uint32_t replica = 0;  // the engine's (EngineOptions)
  uint64_t step_id = 0;  // within it, increasing

  auto operator<=>(const StepKey&) const = default;
};

// One step, when its results are there or it has failed.
struct StepReport {
  StepKey key;
  uint32_t lane = 0;
  bool queued = false;  // handed over while another was under way
  absl::Time begin;     // handed over
  // The device had nothing else to do from here on: `begin`, or the end of the step before.
  absl::Time turn;
  absl::Time end;
  uint32_t decode_rows = 0;
  uint32_t prompt_rows = 0;
  uint32_t drafted_rows = 0;                // of decode_rows, or behind prompt rows
  std::span<const RequestRows> requests;    // some may have ended since
  std::span<const SegmentTiming> segments;  // in order; empty when the step failed
  const Plan* plan = nullptr;               // Borrowed for the call
  absl::Status status;
};

// A request's end.
struct RequestReport {
  RequestNumber number = 0;
  const EngineRequest* request = nullptr;           // Borrowed for the call
  absl::Time submitted;                             // or when it began to wait for its pictures
  absl::Time started = absl::InfiniteFuture();      // its first rows were handed over, if they were
  absl::Time first_token = absl::InfiniteFuture();  // likewise
  absl::Time last_token = absl::InfiniteFuture();
  absl::Time end;
  uint32_t completion_tokens = 0;
  uint32_t verified_guesses = 0;  // of drafters
  uint32_t accepted_guesses = 0;  // of them
  uint32_t cached_tokens = 0;     // of the prompt, in the KV cache when it started
  absl::Status status;
  v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED;  // when the status is OK
};

// The plan in force of an engine, from its start and after each recovery.
struct PlanReport {
  uint32_t replica = 0;        // the engine's (EngineOptions)
  const Plan* plan = nullptr;  // Borrowed for the call
  uint32_t num_layers = 0;
  uint64_t epoch = 0;
};

// Called on the engine's thread, or the threads of several, one call at a time, unless a method says
// otherwise.  A slow method delays every request.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;

  // From the thread that makes the engine at first, before all other calls.
  virtual void PlanInForce(const PlanReport& /*report*/) {}

  // A request was refused before it reached the engine's thread; no other call reports it.  From
  // any thread.
  virtual void RequestRefused(Api /*api*/, const absl::Status& /*status*/) {}

  // The source of a constraint was compiled in `time`, or could not be: INVALID_ARGUMENT.
  // CANCELLED: the requests for it went away meanwhile.  From any thread.
  virtual void ConstraintCompiled(const absl::Status& /*status*/, absl::Duration /*time*/) {}
  // A request's constraint was compiled already, or was being compiled.  From any thread.
  virtual void ConstraintFound() {}
  // The mask of one token was made in `time`.
  virtual void MaskMade(absl::Duration /*time*/) {}

  // The engine's thread has taken a request that was submitted; `request` holds for the call.
  virtual void RequestAccepted(RequestNumber /*number*/, const EngineRequest& /*request*/,
                               absl::Time /*submitted*/) {}
  // Its first rows are being handed over.
  virtual void RequestStarted(RequestNumber /*number*/, Api /*api*/, absl::Time /*submitted*/,
                              absl::Time /*now*/) {}
  virtual void RequestFirstToken(RequestNumber /*number*/, Api /*api*/, absl::Time /*submitted*/,
                                 absl::Time /*now*/) {}
  virtual void RequestEnded(const RequestReport& /*report*/) {}
  // A step is about to be handed over.  A tracer sets in `trace` the span that the workers' calls
  // belong to.
  virtual void StepBegins(const StepKey& /*key*/, std::span<const RequestRows> /*requests*/,
                          StepTrace& /*trace*/) {}
  // Before the tokens that the step leads to are decided.
  virtual void StepEnded(const StepReport& /*report*/) {}
  // A drafter's step has ended, which ran a plan of its own; step ids are the drafter's, and all its
  // rows count as prompt rows.  From any thread.
  virtual void DraftStepEnded(const StepReport& /*report*/) {}
};

}  // namespace tandem::gateway
