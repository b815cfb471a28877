// Compiles what requests' answers must look like, before the engine gets them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/gateway/constraint/constraint_cache.h"
#include "services/gateway/engine/request_run.h"
#include "services/gateway/model/served_model.h"

namespace tandem::gateway {

// A compilation that requests wait for.  A value; thread-compatible.
class ConstraintWait {
 public:
  // Nothing is waited for.
  ConstraintWait() = default;
  // The client has gone: `next` is called with CANCELLED, and the compilation stops if nobody else
  // waits for it.  Does nothing where `next` was called already.  Not with a lock held that `next`
  // takes.
  void Cancel() const {
    if (cache_ != nullptr) cache_->Cancel(ticket_);
  }

 private:
  friend ConstraintWait PrepareConstraint(
      const ServedModel& model, std::vector<EngineRequest> requests,
      std::function<void(absl::StatusOr<std::vector<EngineRequest>>)> next);
  ConstraintWait(constraint::ConstraintCache& cache, constraint::ConstraintCache::Ticket ticket)
      : cache_(&cache), ticket_(ticket) {}

  constraint::ConstraintCache* cache_ = nullptr;  // the model's
  constraint::ConstraintCache::Ticket ticket_ = constraint::ConstraintCache::kNoTicket;
};

// Calls `next` with the requests, their constraint compiled: at once without one or where it is
// known, else from a thread of the model's cache.  `next` must not block.  Errors: those of
// ConstraintCache::Get, and UNAVAILABLE: the gateway is shutting down.  Observers get RequestRefused
// for each request.
// `model`: Borrowed; must outlive the call of `next`.
// REQUIRES the requests have the same constraint_source, tenant and deadline.
ConstraintWait PrepareConstraint(
    const ServedModel& model, std::vector<EngineRequest> requests,
    std::function<void(absl::StatusOr<std::vector<EngineRequest>>)> next);

// An error of PrepareConstraint that is the source's, with EngineRequest::constraint_field before
// it.  Other errors, and those that name a tool or a picture, stay as they are.
absl::Status NameConstraintField(const absl::Status& status, const std::string& field);

}  // namespace tandem::gateway
