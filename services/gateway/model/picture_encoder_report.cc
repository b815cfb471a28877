// What PictureEncoder counts.
#include "absl/time/clock.h"
#include "services/gateway/model/picture_encoder.h"

namespace tandem::gateway {

PictureEncoder::Counts PictureEncoder::counts() const {
  Counts counts;
  for (int i = 0; i < kNumPictureOutcomes; ++i) {
    counts.outcomes[i] = outcomes_[i].load(std::memory_order_relaxed);
  }
  for (int i = 0; i < kNumPictureStages; ++i) {
    counts.stage_times[i] = absl::Nanoseconds(stage_ns_[i].load(std::memory_order_relaxed));
  }
  MutexLock lock(mutex_);
  counts.waiting = waiting_of_all_.jobs;
  counts.cached = cached_.size();
  counts.cached_bytes = cached_bytes_;
  return counts;
}

void PictureEncoder::ReportStage(PictureStage stage, absl::Time begin) {
  const absl::Duration time = absl::Now() - begin;
  stage_ns_[static_cast<size_t>(stage)].fetch_add(absl::ToInt64Nanoseconds(time),
                                                  std::memory_order_relaxed);
  if (options_.on_stage) options_.on_stage(stage, time);
}

void PictureEncoder::ReportStage(const Job& job, PictureTime time) {
  ReportStage(time.stage, time.begin);
  time.end = absl::Now();
  if (job.asked.times != nullptr) job.asked.times->push_back(time);
}

void PictureEncoder::Report(PictureOutcome outcome, size_t num_pictures) {
  outcomes_[static_cast<size_t>(outcome)].fetch_add(num_pictures, std::memory_order_relaxed);
  for (size_t i = 0; options_.on_picture && i < num_pictures; ++i) options_.on_picture(outcome);
}

void PictureEncoder::ReportError(const absl::Status& status) {
  Report(absl::IsInvalidArgument(status) ? PictureOutcome::kRefused : PictureOutcome::kFailed);
}

}  // namespace tandem::gateway
