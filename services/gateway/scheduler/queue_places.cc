#include "services/gateway/scheduler/queue_places.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace tandem::gateway {

absl::Status QueuePlaces::Take(const std::string& tenant) {
  const auto found = by_tenant_.find(tenant);
  const uint64_t own = found == by_tenant_.end() ? 0 : found->second;
  if (num_taken_ >= capacity_) {
    const uint64_t num_tenants = by_tenant_.size() + (own == 0 ? 1 : 0);
    const uint64_t share = std::max<uint64_t>(capacity_ / num_tenants, 1);
    if (num_tenants == 1 || own >= share || num_taken_ >= 2 * capacity_) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "the queue is full: %d requests are running or waiting, %d at most; %d of them are this "
          "client's, whose share is %d; retry later",
          num_taken_, capacity_, own, share));
    }
  }
  ++num_taken_;
  ++by_tenant_[tenant];
  return absl::OkStatus();
}

void QueuePlaces::Release(const std::string& tenant) {
  --num_taken_;
  const auto found = by_tenant_.find(tenant);
  if (--found->second == 0) by_tenant_.erase(found);
}

}  // namespace tandem::gateway
