// What requests wait for before the engine gets them: their pictures, fetched and encoded, then
// their constraint.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gateway/engine/request_run.h"
#include "services/gateway/model/served_model.h"

namespace tandem::gateway {

// A preparation that requests wait for.  A value; thread-compatible.
class RequestWait {
 public:
  // Nothing is waited for.
  RequestWait() = default;
  // The client has gone: as ConstraintWait::Cancel.
  void Cancel() const;

 private:
  friend RequestWait PrepareRequests(
      const ServedModel& model, std::vector<EngineRequest> requests,
      std::function<void(absl::StatusOr<std::vector<EngineRequest>>)> next);
  struct State;
  explicit RequestWait(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;  // shared with the preparation
};

// Calls `next` with the requests, their pictures fetched and encoded and their constraint compiled:
// at once where nothing is missing, else from another thread.  `next` must not block.  Errors: those
// of PictureFetcher::Get, PictureEncoder::Get and PrepareConstraint.  Observers get RequestRefused for
// each request.
// `model`: Borrowed; must outlive the call of `next`.
// REQUIRES the requests have the same pictures, constraint_source, tenant, cache scope and deadline,
// and picture_files only where the model has an encoder.
RequestWait PrepareRequests(const ServedModel& model, std::vector<EngineRequest> requests,
                            std::function<void(absl::StatusOr<std::vector<EngineRequest>>)> next);

}  // namespace tandem::gateway
