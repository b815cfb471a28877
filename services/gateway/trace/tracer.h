// Records what the engine does, for traces.
//
//   engine --observer--> Tracer: a record for each step and each request
//                          |-> TraceRing: the latest requests in full, for `tandem trace`
//                          |-> SpanExporter: sampled requests, to a collector
//
// Costs the engine's thread one or two small allocations for each step; other threads build spans.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "services/common/base/mutex.h"
#include "services/gateway/engine/engine_observer.h"
#include "services/gateway/trace/span_exporter.h"
#include "services/gateway/trace/trace_ring.h"

namespace tandem::gateway {

struct TracerOptions {
  std::string model;  // as the loader lists it
  size_t keep_requests = 64;
  size_t max_kept_bytes = 64 << 20;
  // Further steps of a request are not kept; the trace has their number.
  size_t max_request_bytes = 16 << 20;
  SpanExporter* exporter = nullptr;  // Borrowed; must outlive this.  Null: nothing is exported
};

// The ring and DraftStepEnded are thread-safe; all other methods are called one at a time.
class Tracer final : public EngineObserver {
 public:
  explicit Tracer(TracerOptions options);

  void RequestAccepted(RequestNumber number, const EngineRequest& request,
                       absl::Time submitted) override;
  void RequestFirstToken(RequestNumber number, Api api, absl::Time submitted,
                         absl::Time now) override;
  void RequestEnded(const RequestReport& report) override;
  void StepBegins(const StepKey& key, std::span<const RequestRows> requests,
                  StepTrace& trace) override;
  void StepEnded(const StepReport& report) override;
  void DraftStepEnded(const StepReport& report) override;

  const TraceRing& ring() const { return ring_; }

 private:
  struct Live {
    RequestTrace trace;
    absl::Time first_token = absl::InfiniteFuture();
    absl::Time decode_begin = absl::InfiniteFuture();
    std::vector<std::shared_ptr<const TracedStep>> steps;
    size_t num_bytes = 0;
    uint32_t steps_left_out = 0;
  };
  // A submitted step, and the request whose trace it belongs to.
  struct Begun {
    uint64_t step_id = 0;
    StepTrace trace;
    RequestNumber owner = 0;
  };

  // What an engine does.
  struct Replica {
    std::deque<Begun> begun;  // in order
    std::shared_ptr<const TracedPlan> plan;
  };

  // A drafter's step, until the requests that it served are known.
  struct Draft {
    std::shared_ptr<TracedStep> step;
    std::vector<RequestRows> requests;
  };
  static constexpr size_t kMostDrafts = 1024;

  // Whether a step of this context is kept or exported.
  bool Keeps(const TraceContext& step) const;
  // Without shares and context.  `plan`: the last one that the same steps ran.
  static std::shared_ptr<TracedStep> Record(const StepReport& report,
                                            std::shared_ptr<const TracedPlan>& plan);
  // Gives the requests their drafters' steps.
  void TakeDrafts();
  void Add(const std::shared_ptr<const TracedStep>& step);
  // The shares of the requests that still run, the owner's first.
  std::vector<StepShare> SharesOf(const StepReport& report, RequestNumber owner);
  void Keep(const std::shared_ptr<const TracedStep>& step);

  const TracerOptions options_;
  TraceRing ring_;
  std::unordered_map<RequestNumber, Live> live_;
  std::map<uint32_t, Replica> replicas_;

  Mutex mutex_;
  std::vector<Draft> drafts_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, std::shared_ptr<const TracedPlan>> draft_plans_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::gateway
