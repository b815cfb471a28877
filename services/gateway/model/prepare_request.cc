#include "services/gateway/model/prepare_request.h"

#include <utility>

#include "absl/time/clock.h"
#include "services/common/base/mutex.h"
#include "services/gateway/model/prepare_constraint.h"

namespace tandem::gateway {
namespace {

// Has the requests' pictures encoded.
PictureEncoder::Ticket See(const ServedModel& model, std::vector<EngineRequest> requests,
                           std::function<void(absl::StatusOr<std::vector<EngineRequest>>)> next) {
  EngineRequest& first = requests.front();
  if (model.shared_prefixes()) first.cache_scope.clear();
  const absl::Time begin = absl::Now();
  PictureJob job = {.sender = first.tenant.name,
                    .scope = PrefixScopeOf(first),
                    .files = first.picture_files,
                    .deadline = first.deadline};
  auto shared = std::make_shared<std::vector<EngineRequest>>(std::move(requests));
  return model.pictures()->Get(std::move(job),
                               [&model, shared, begin, next = std::move(next)](
                                   const absl::StatusOr<PictureEncoder::Pictures>& pictures) {
                                 if (!pictures.ok()) {
                                   for (const EngineRequest& request : *shared) {
                                     model.engine().ReportRefused(request.api, pictures.status());
                                   }
                                   return next(pictures.status());
                                 }
                                 for (EngineRequest& request : *shared) {
                                   for (size_t i = 0; i < request.pictures.size(); ++i) {
                                     request.pictures[i].picture = (*pictures)[i];
                                   }
                                   request.picture_files = nullptr;
                                   request.pictures_begin = begin;
                                   request.pictures_end = absl::Now();
                                 }
                                 next(std::move(*shared));
                               });
}

}  // namespace

struct RequestWait::State {
  Mutex mutex;
  bool cancelled ABSL_GUARDED_BY(mutex) = false;
  PictureEncoder* encoder ABSL_GUARDED_BY(mutex) = nullptr;  // the model's
  PictureEncoder::Ticket ticket ABSL_GUARDED_BY(mutex) = PictureEncoder::kNoTicket;
  ConstraintWait constraint ABSL_GUARDED_BY(mutex);
};

void RequestWait::Cancel() const {
  if (state_ == nullptr) return;
  PictureEncoder* encoder = nullptr;
  PictureEncoder::Ticket ticket = PictureEncoder::kNoTicket;
  ConstraintWait constraint;
  {
    MutexLock lock(state_->mutex);
    state_->cancelled = true;
    encoder = state_->encoder;
    ticket = state_->ticket;
    constraint = state_->constraint;
  }
  if (encoder != nullptr) encoder->Cancel(ticket);
  constraint.Cancel();
}

RequestWait PrepareRequests(const ServedModel& model, std::vector<EngineRequest> requests,
                            std::function<void(absl::StatusOr<std::vector<EngineRequest>>)> next) {
  const auto state = std::make_shared<RequestWait::State>();
  // Runs on a thread of the encoder, or here.
  const auto constrain = [&model, state,
                          next = std::move(next)](absl::StatusOr<std::vector<EngineRequest>> seen) {
    if (!seen.ok()) return next(std::move(seen));
    const ConstraintWait wait = PrepareConstraint(model, *std::move(seen), next);
    bool cancelled = false;
    {
      MutexLock lock(state->mutex);
      state->constraint = wait;
      cancelled = state->cancelled;
    }
    if (cancelled) wait.Cancel();
  };
  if (requests.empty() || requests.front().picture_files == nullptr) {
    constrain(std::move(requests));
    return RequestWait(state);
  }
  const PictureEncoder::Ticket ticket = See(model, std::move(requests), constrain);
  bool cancelled = false;
  {
    MutexLock lock(state->mutex);
    state->encoder = model.pictures();
    state->ticket = ticket;
    cancelled = state->cancelled;
  }
  if (cancelled) model.pictures()->Cancel(ticket);
  return RequestWait(state);
}

}  // namespace tandem::gateway
