#include "services/gateway/trace/trace_ring.h"

#include <utility>

namespace tandem::gateway {

void TraceRing::Add(KeptTrace trace) {
  if (max_requests_ == 0) return;
  size_t num_bytes = sizeof(TracedRequest);
  for (const auto& step : trace.steps) num_bytes += step->num_bytes();
  if (const auto& times = trace.request->picture_times; times != nullptr) {
    num_bytes += times->size() * sizeof(PictureTime);
  }
  std::vector<Entry> gone;  // dropped entries, freed after the lock is released
  MutexLock lock(mutex_);
  entries_.push_back({std::move(trace), num_bytes});
  num_bytes_ += num_bytes;
  while (entries_.size() > 1 && (entries_.size() > max_requests_ || num_bytes_ > max_bytes_)) {
    num_bytes_ -= entries_.front().num_bytes;
    gone.push_back(std::move(entries_.front()));
    entries_.pop_front();
  }
}

std::vector<KeptTrace> TraceRing::Find(std::string_view request_id,
                                       const std::optional<std::string>& tenant) const {
  std::vector<KeptTrace> found;
  MutexLock lock(mutex_);
  const auto theirs = [&tenant](const Entry& entry) {
    return !tenant.has_value() || entry.trace.request->tenant == *tenant;
  };
  std::string wanted(request_id);
  for (auto entry = entries_.rbegin(); wanted.empty() && entry != entries_.rend(); ++entry) {
    if (theirs(*entry)) wanted = entry->trace.request->request_id;
  }
  for (const Entry& entry : entries_) {
    if (theirs(entry) && entry.trace.request->request_id == wanted) found.push_back(entry.trace);
  }
  return found;
}

}  // namespace tandem::gateway
