#include "services/gateway/executor/step_pacer.h"

#include <algorithm>
#include <thread>

namespace tandem::gateway {
namespace {

using std::chrono::microseconds;

constexpr size_t kRecent = 32;
constexpr StepPacer::Duration kReserve = microseconds(300);
constexpr int kReserveShare = 16;  // of a step
// A measured time of sending is forgotten at this rate: after 20 steps an eighth is left.
constexpr double kSendingKept = 0.9;

bool NoLarger(const StepSize& a, const StepSize& b) {
  return a.num_rows <= b.num_rows && a.num_outputs <= b.num_outputs && a.table_len <= b.table_len;
}

}  // namespace

StepPacer::Duration StepPacer::ShortestLike(const StepSize& size) const {
  // Steps of less than half the rows are much shorter: they count if there are no others.
  Duration shortest{0}, shortest_small{0};
  for (const Ran& ran : recent_) {
    if (!NoLarger(ran.size, size)) continue;
    Duration& least = 2 * ran.size.num_rows >= size.num_rows ? shortest : shortest_small;
    if (least == Duration{0} || ran.device_time < least) least = ran.device_time;
  }
  return shortest != Duration{0} ? shortest : shortest_small;
}

StepPacer::Duration StepPacer::Delay(const StepSize& size) const {
  const Duration shortest = ShortestLike(size);
  const Duration lead = sending_ + round_trip_ + std::max(kReserve, shortest / kReserveShare);
  return std::max(shortest - lead, Duration{0});
}

void StepPacer::StepRan(const StepSize& size, Duration device_time) {
  sending_ = Duration(static_cast<int64_t>(kSendingKept * static_cast<double>(sending_.count())));
  if (device_time <= Duration{0}) return;
  recent_.push_back({size, device_time});
  if (recent_.size() > kRecent) recent_.pop_front();
}

void StepPacer::CallTook(Duration round_trip) {
  round_trip_ += (std::max(round_trip, Duration{0}) - round_trip_) / 4;
}

void StepPacer::SendingTook(Duration time) { sending_ = std::max(sending_, time); }

void StepTimer::WaitUntilDue(const StepSize& size, Clock::time_point began) {
  due_.reset();
  const Clock::time_point due = began + pacer_.Delay(size);
  if (Clock::now() >= due) return;
  std::this_thread::sleep_until(due);
  due_ = due;
}

void StepTimer::Sent() {
  if (due_.has_value()) pacer_.SendingTook(Clock::now() - *due_);
  due_.reset();
}

}  // namespace tandem::gateway
