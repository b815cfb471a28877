#include "services/gateway/model/prepare_request.h"

#include <utility>

#include "absl/time/clock.h"
#include "services/common/base/mutex.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/model/prepare_constraint.h"
#include "services/gateway/model/text_tokens.h"

namespace tandem::gateway {
namespace {

using Requests = std::vector<EngineRequest>;
using Next = std::function<void(absl::StatusOr<Requests>)>;

void ReportRefused(const ServedModel& model, const Requests& requests, const absl::Status& status) {
  for (const EngineRequest& request : requests) {
    model.replicas().ReportRefused(request.api, status);
  }
}

// Has the requests' pictures fetched from their URLs.
PictureFetcher::Ticket Fetch(const ServedModel& model, Requests requests,
                             const std::shared_ptr<PictureTimes>& times, Next next) {
  EngineRequest& first = requests.front();
  FetchJob job = {.sender = first.tenant.name,
                  .files = first.picture_files,
                  .urls = first.picture_urls,
                  .deadline = first.deadline,
                  .times = times};
  auto shared = std::make_shared<Requests>(std::move(requests));
  return model.pictures()->fetcher()->Get(
      std::move(job),
      [&model, shared, next = std::move(next)](const absl::StatusOr<FetchJob::Strings>& files) {
        if (!files.ok()) {
          ReportRefused(model, *shared, files.status());
          return next(files.status());
        }
        for (EngineRequest& request : *shared) {
          request.picture_files = *files;
          request.picture_urls = nullptr;
        }
        next(std::move(*shared));
      });
}

// Puts the pictures into the requests, which have the same ones.  The prompt is made once more where
// they have crops: only now their number is known.  Errors: as of EncodeChat.
absl::Status PlacePictures(const ServedModel& model, const PictureEncoder::Pictures& pictures,
                           Requests& requests) {
  EngineRequest& first = requests.front();
  PicturePlaces places = {.num_rows = first.pictures.front().num_rows};
  std::vector<std::shared_ptr<const Picture>> views;
  for (const PictureViews& file : pictures) {
    places.num_crops.push_back(static_cast<uint32_t>(file.size() - 1));
    views.insert(views.end(), file.begin(), file.end());
  }
  if (views.size() > pictures.size()) {
    TANDEM_ASSIGN_OR_RETURN(first.prompt, EncodeChat(first.conversation->messages, model, &places));
    first.pictures.clear();
    for (const uint32_t at : places.first) first.pictures.push_back({at, places.num_rows});
  }
  for (size_t i = 0; i < views.size(); ++i) first.pictures[i].picture = views[i];
  for (EngineRequest& request : requests) {
    if (&request != &first) {
      request.prompt = first.prompt;
      request.pictures = first.pictures;
    }
    request.picture_files = nullptr;
    request.conversation = nullptr;
  }
  return absl::OkStatus();
}

// Has the requests' pictures encoded.  `fetched`: called from the fetcher's thread, which all wait for.
PictureEncoder::Ticket See(const ServedModel& model, Requests requests, bool fetched,
                           const std::shared_ptr<PictureTimes>& times, Next next) {
  EngineRequest& first = requests.front();
  if (model.shared_prefixes()) first.cache_scope.clear();
  PictureJob job = {.sender = first.tenant.name,
                    .scope = PrefixScopeOf(first),
                    .files = first.picture_files,
                    .deadline = first.deadline,
                    .look_later = fetched,
                    .times = times};
  auto shared = std::make_shared<Requests>(std::move(requests));
  return model.pictures()->Get(std::move(job),
                               [&model, shared, times, next = std::move(next)](
                                   const absl::StatusOr<PictureEncoder::Pictures>& pictures) {
                                 absl::Status status = pictures.status();
                                 if (status.ok()) status = PlacePictures(model, *pictures, *shared);
                                 if (!status.ok()) {
                                   ReportRefused(model, *shared, status);
                                   return next(status);
                                 }
                                 for (EngineRequest& request : *shared) {
                                   request.pictures_end = absl::Now();
                                   request.picture_times = times;
                                 }
                                 next(std::move(*shared));
                               });
}

}  // namespace

struct RequestWait::State {
  // What requests can wait for, in this order.
  enum class Step : uint8_t { kNone, kFetch, kPictures, kConstraint };

  // `cancel` ends what `step` waits for; called at once where the client has gone already.  A step may
  // begin on another thread before the one before it says how it is cancelled.
  void Waits(Step step, std::function<void()> cancel) {
    {
      MutexLock lock(mutex);
      if (step < waits_for) return;
      waits_for = step;
      cancel_step = cancel;
      if (!cancelled) return;
    }
    cancel();
  }

  Mutex mutex;
  bool cancelled ABSL_GUARDED_BY(mutex) = false;
  Step waits_for ABSL_GUARDED_BY(mutex) = Step::kNone;
  std::function<void()> cancel_step ABSL_GUARDED_BY(mutex);
};

void RequestWait::Cancel() const {
  if (state_ == nullptr) return;
  std::function<void()> cancel;
  {
    MutexLock lock(state_->mutex);
    state_->cancelled = true;
    cancel = state_->cancel_step;
  }
  if (cancel) cancel();
}

RequestWait PrepareRequests(const ServedModel& model, std::vector<EngineRequest> requests,
                            std::function<void(absl::StatusOr<std::vector<EngineRequest>>)> next) {
  using Step = RequestWait::State::Step;
  const auto state = std::make_shared<RequestWait::State>();
  // Each runs on a thread of the step before it, or here.
  const Next constrain = [&model, state, next = std::move(next)](absl::StatusOr<Requests> seen) {
    if (!seen.ok()) return next(std::move(seen));
    const ConstraintWait wait = PrepareConstraint(model, *std::move(seen), next);
    state->Waits(Step::kConstraint, [wait] { wait.Cancel(); });
  };
  const auto times = std::make_shared<PictureTimes>();
  const auto see = [&model, state, times, constrain](Requests all, bool fetched) {
    const PictureEncoder::Ticket ticket = See(model, std::move(all), fetched, times, constrain);
    state->Waits(Step::kPictures, [&model, ticket] { model.pictures()->Cancel(ticket); });
  };
  if (requests.empty() || requests.front().picture_files == nullptr) {
    constrain(std::move(requests));
    return RequestWait(state);
  }
  if (const absl::Status place = model.replicas().CheckPlace(requests.front()); !place.ok()) {
    ReportRefused(model, requests, place);
    constrain(place);
    return RequestWait(state);
  }
  for (EngineRequest& request : requests) request.pictures_begin = absl::Now();
  if (requests.front().picture_urls == nullptr) {
    see(std::move(requests), /*fetched=*/false);
    return RequestWait(state);
  }
  const Next then = [see, constrain](absl::StatusOr<Requests> fetched) {
    if (!fetched.ok()) return constrain(std::move(fetched));
    see(*std::move(fetched), /*fetched=*/true);
  };
  const PictureFetcher::Ticket ticket = Fetch(model, std::move(requests), times, then);
  state->Waits(Step::kFetch, [&model, ticket] { model.pictures()->fetcher()->Cancel(ticket); });
  return RequestWait(state);
}

}  // namespace tandem::gateway
