#include "services/gateway/engine/admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/error_details.h"

namespace tandem::gateway {
namespace {

// A forecast is right within 30%: a deadline is refused if even the best case is too late.
constexpr double kBestCase = 0.7;
// Ends that are looked at for when there will be room.
constexpr size_t kMostEnds = 4096;

absl::Status RetryIn(const absl::Status& status, absl::Duration wait) {
  const std::string text =
      absl::StrFormat("%s; at the measured rate, retry in %.1f s", std::string(status.message()),
                      absl::ToDoubleSeconds(wait));
  return WithRetryAfter(absl::Status(status.code(), text), wait);
}

}  // namespace

absl::Status Admission::Submit(EngineRequest&& request, std::shared_ptr<TokenStream> stream) {
  const absl::Time now = absl::Now();
  MutexLock lock(mutex_);
  if (draining_ || stopped_) return end_reason_;
  if (request.prompt.empty()) return absl::InvalidArgumentError("the prompt has no tokens");
  if (request.prompt.size() >= max_sequence_len_) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "context_length_exceeded: the prompt has %d tokens and must leave room for one more in a "
        "context of %d",
        request.prompt.size(), max_sequence_len_));
  }
  const RequestSize size = SizeOf(request);
  TANDEM_RETURN_IF_ERROR(CheckDeadline(size, request.deadline, now));
  const absl::Status taken = places_.Take(size.tenant, size.prompt_tokens);
  if (!taken.ok()) return RefuseFull(taken, size, now);
  const uint64_t id = ids_->Next();
  forecast_.Admitted(id, size);
  submitted_.push_back({id, std::move(request), std::move(stream), now, nullptr});
  work_.SignalOne();
  return absl::OkStatus();
}

absl::Status Admission::CheckPlace(const EngineRequest& request) const {
  const absl::Time now = absl::Now();
  MutexLock lock(mutex_);
  if (draining_ || stopped_) return end_reason_;
  const RequestSize size = SizeOf(request);
  QueuePlaces places = places_;
  const absl::Status taken = places.Take(size.tenant, size.prompt_tokens);
  return taken.ok() ? taken : RefuseFull(taken, size, now);
}

bool Admission::Adopt(std::unique_ptr<MovedRequest>& moved) {
  const EngineRequest& request = moved->run->request();
  MutexLock lock(mutex_);
  if (stopped_ || closed_ ||
      request.prompt.size() + moved->progress.answer.size() >= max_sequence_len_) {
    return false;
  }
  const RequestSize size = SizeOf(request);
  places_.TakeAnyway(size.tenant, size.prompt_tokens);
  forecast_.Admitted(moved->id, size);
  ends_.reset();
  SubmittedRequest submitted;
  submitted.id = moved->id;
  submitted.moved = std::move(moved);
  submitted_.push_back(std::move(submitted));
  work_.SignalOne();
  return true;
}

std::optional<double> Admission::PredictEnd(const EngineRequest& request, uint32_t cached) const {
  const absl::Time now = absl::Now();
  MutexLock lock(mutex_);
  RequestSize size = SizeOf(request);
  size.prompt_tokens -= std::min(cached, size.prompt_tokens);
  const std::optional<double> seconds = forecast_.Predict(size);
  if (!seconds.has_value()) return std::nullopt;
  return absl::ToDoubleSeconds(FromNow(*seconds, now));
}

RequestSize Admission::SizeOf(const EngineRequest& request) const {
  const auto prompt = static_cast<uint32_t>(request.prompt.size());
  const bool open = request.max_tokens == kNoTokenLimit && !request.embedding;
  const uint32_t limit = request.embedding ? 0 : request.max_tokens;
  const uint32_t room = max_sequence_len_ - std::min(prompt, max_sequence_len_);
  return {.tenant = request.tenant.name,
          .weight = request.tenant.weight,
          .priority = request.priority,
          .prompt_tokens = prompt,
          .max_answer = open ? kOpenAnswer : std::min(limit, room)};
}

const std::vector<LoadForecast::End>& Admission::Ends() const {
  if (!ends_.has_value()) ends_ = forecast_.Ends(kMostEnds);
  return *ends_;
}

absl::Duration Admission::FromNow(double seconds, absl::Time now) const {
  // The step under way has begun at about the time of the last progress.
  const absl::Duration passed = std::min(now - progress_at_, last_step_);
  return std::max(absl::Seconds(seconds) - passed, absl::ZeroDuration());
}

absl::Status Admission::RefuseFull(const absl::Status& full, const RequestSize& size,
                                   absl::Time now) const {
  QueuePlaces places = places_;
  for (const LoadForecast::End& end : Ends()) {
    places.Release(end.tenant, end.prompt_tokens);
    if (places.Fits(size.tenant, size.prompt_tokens)) {
      return RetryIn(full, FromNow(end.seconds, now));
    }
  }
  return full;
}

absl::Status Admission::CheckDeadline(const RequestSize& size, absl::Time deadline,
                                      absl::Time now) const {
  if (deadline == absl::InfiniteFuture() || deadline <= now) return absl::OkStatus();
  const auto alone = forecast_.PredictAlone(size);
  if (!alone.has_value() || !forecast_.costs().settled()) return absl::OkStatus();
  const double limit = absl::ToDoubleSeconds(deadline - now);
  // Mostly, there is time enough for all requests one after the other.
  const std::vector<LoadForecast::End>& ends = Ends();
  const double all = ends.empty() ? 0.0 : ends.back().seconds;
  if (ends.size() == forecast_.num_requests() && all + *alone <= limit) return absl::OkStatus();
  const double end = *forecast_.Predict(size);
  if (kBestCase * end <= limit) return absl::OkStatus();
  const char* const what =
      forecast_.knows_answers() ? "the answer would end" : "its first token would come";
  const std::string text = absl::StrFormat(
      "the deadline in %.1f s cannot be met: at the measured rate %s in %.1f s", limit, what, end);
  if (kBestCase * *alone > limit) {
    return absl::DeadlineExceededError(text + ", with nothing else running too; allow more time");
  }
  return RetryIn(absl::ResourceExhaustedError(text), absl::Seconds(end - limit));
}

void Admission::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
}

void Admission::Drain(absl::Duration patience) {
  MutexLock lock(mutex_);
  draining_ = true;
  const absl::Time until = absl::Now() + patience;
  while (places_.num_taken() > 0 && ended_.WaitUntil(mutex_, until)) {
  }
}

void Admission::Stop(absl::Status reason) {
  MutexLock lock(mutex_);
  if (!stopped_) end_reason_ = std::move(reason);
  stopped_ = true;
  work_.SignalOne();
}

void Admission::SetMaxSequenceLen(uint32_t tokens) {
  MutexLock lock(mutex_);
  max_sequence_len_ = tokens;
}

bool Admission::WaitForRequest(absl::Duration patience) {
  MutexLock lock(mutex_);
  const absl::Time until = absl::Now() + patience;
  while (places_.num_taken() == 0 && !woken_ && !stopped_ && work_.WaitUntil(mutex_, until)) {
  }
  woken_ = false;
  return !stopped_;
}

void Admission::Wake() {
  MutexLock lock(mutex_);
  woken_ = true;
  work_.SignalOne();
}

std::vector<SubmittedRequest> Admission::Take() {
  std::vector<SubmittedRequest> taken;
  MutexLock lock(mutex_);
  taken.swap(submitted_);
  return taken;
}

void Admission::Ended(uint64_t id) { Left(Leaves(id)); }

RequestSize Admission::Leaves(uint64_t id) {
  MutexLock lock(mutex_);
  ends_.reset();
  return forecast_.Remove(id);
}

void Admission::Left(const RequestSize& size) {
  MutexLock lock(mutex_);
  places_.Release(size.tenant, size.prompt_tokens);
  ended_.SignalAll();
}

void Admission::Stays(uint64_t id, const RequestSize& size) {
  MutexLock lock(mutex_);
  forecast_.Admitted(id, size);
  ends_.reset();
}

void Admission::StepTook(uint32_t decode_rows, uint32_t prompt_rows, absl::Duration time) {
  MutexLock lock(mutex_);
  last_step_ = time;
  forecast_.costs().StepTook(decode_rows, prompt_rows, absl::ToDoubleSeconds(time));
}

void Admission::Progress(const std::vector<RequestProgress>& running, uint32_t places) {
  const absl::Time now = absl::Now();
  MutexLock lock(mutex_);
  progress_at_ = now;
  forecast_.Progress(running, places);
  ends_.reset();
}

void Admission::SetPace(double tokens) {
  MutexLock lock(mutex_);
  forecast_.SetPace(tokens);
}

void Admission::AnswerEnded(uint32_t tokens, bool by_limit) {
  MutexLock lock(mutex_);
  forecast_.AnswerEnded(tokens, by_limit);
}

uint32_t Admission::PromptRowsWithin(uint32_t decode_rows, absl::Duration time) const {
  MutexLock lock(mutex_);
  return forecast_.costs().PromptRowsWithin(decode_rows, absl::ToDoubleSeconds(time), max_rows_);
}

bool Admission::draining() const {
  MutexLock lock(mutex_);
  return draining_;
}

bool Admission::stopped() const {
  MutexLock lock(mutex_);
  return stopped_;
}

absl::Status Admission::end_reason() const {
  MutexLock lock(mutex_);
  return end_reason_;
}

uint32_t Admission::num_requests() const {
  MutexLock lock(mutex_);
  return static_cast<uint32_t>(places_.num_taken());
}

uint32_t Admission::max_sequence_len() const {
  MutexLock lock(mutex_);
  return max_sequence_len_;
}

}  // namespace tandem::gateway
