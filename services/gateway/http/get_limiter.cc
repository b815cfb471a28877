#include "services/gateway/http/get_limiter.h"

#include <algorithm>

namespace tandem::gateway {

void GetLimiter::Fill(Bucket& bucket, absl::Time now) const {
  const double seconds = absl::ToDoubleSeconds(std::max(now - bucket.filled, absl::ZeroDuration()));
  bucket.level = std::min(capacity(), bucket.level + seconds * per_second_);
  bucket.filled = std::max(bucket.filled, now);
}

GetLimiter::Bucket& GetLimiter::Find(const std::string& client, absl::Time now) {
  auto found = buckets_.find(client);
  if (found == buckets_.end() && buckets_.size() >= kMaxClients) {
    // A full bucket says nothing that a new one would not.
    for (auto it = buckets_.begin(); it != buckets_.end();) {
      Fill(it->second, now);
      it = it->second.level >= capacity() ? buckets_.erase(it) : std::next(it);
    }
  }
  if (found == buckets_.end()) {
    const std::string& name = buckets_.size() < kMaxClients ? client : std::string();
    found = buckets_.try_emplace(name, Bucket{capacity(), now}).first;
  }
  Fill(found->second, now);
  return found->second;
}

std::optional<absl::Duration> GetLimiter::Take(const std::string& client, absl::Time now) {
  if (per_second_ == 0) return std::nullopt;
  MutexLock lock(mutex_);
  Bucket& bucket = Find(client, now);
  if (bucket.level < 1.0) return absl::Seconds((1.0 - bucket.level) / per_second_);
  bucket.level -= 1.0;
  return std::nullopt;
}

void GetLimiter::Charge(const std::string& client, uint64_t num_bytes, absl::Time now) {
  if (per_second_ == 0 || num_bytes < kBytesPerGet) return;
  MutexLock lock(mutex_);
  Find(client, now).level -= static_cast<double>(num_bytes / kBytesPerGet);
}

size_t GetLimiter::num_clients() const {
  MutexLock lock(mutex_);
  return buckets_.size();
}

}  // namespace tandem::gateway
