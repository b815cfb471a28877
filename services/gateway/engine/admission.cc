#include "services/gateway/engine/admission.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway {

absl::Status Admission::Submit(EngineRequest request, std::shared_ptr<TokenStream> stream) {
  MutexLock lock(mutex_);
  if (draining_ || stopped_) return end_reason_;
  if (request.prompt.empty()) return absl::InvalidArgumentError("the prompt has no tokens");
  if (request.prompt.size() >= max_sequence_len_) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "context_length_exceeded: the prompt has %d tokens and must leave room for one more in a "
        "context of %d",
        request.prompt.size(), max_sequence_len_));
  }
  TANDEM_RETURN_IF_ERROR(places_.Take(request.tenant.name));
  submitted_.push_back({std::move(request), std::move(stream), absl::Now()});
  work_.SignalOne();
  return absl::OkStatus();
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
  while (places_.num_taken() == 0 && !stopped_ && work_.WaitUntil(mutex_, until)) {
  }
  return !stopped_;
}

std::vector<SubmittedRequest> Admission::Take() {
  std::vector<SubmittedRequest> taken;
  MutexLock lock(mutex_);
  taken.swap(submitted_);
  return taken;
}

void Admission::Ended(const std::string& tenant) {
  MutexLock lock(mutex_);
  places_.Release(tenant);
  ended_.SignalAll();
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
