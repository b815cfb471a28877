// Limits the GETs and HEADs of each client; the limits of a key do not count most of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"

namespace tandem::gateway {

// Each client has a token bucket: it fills evenly, holds two seconds' worth and starts full.  A GET
// takes one token, and one more for each kBytesPerGet of its answer; the answer's size is known
// later, so a bucket can go negative.  At most kMaxClients have a bucket of their own; others share
// one.  Thread-safe.
class GetLimiter {
 public:
  static constexpr size_t kBytesPerGet = 64 << 10;
  static constexpr size_t kMaxClients = 4096;

  // `per_second`: 0: no limit.
  explicit GetLimiter(uint32_t per_second) : per_second_(per_second) {}

  // Takes a token of `client`, or returns how long it must wait for one.
  std::optional<absl::Duration> Take(const std::string& client, absl::Time now);
  // Takes the tokens for an answer of `num_bytes`.
  void Charge(const std::string& client, uint64_t num_bytes, absl::Time now);

  size_t num_clients() const;

 private:
  struct Bucket {
    double level = 0.0;
    absl::Time filled;
  };
  double capacity() const { return 2.0 * per_second_; }
  // Filled up to `now`.
  Bucket& Find(const std::string& client, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fill(Bucket& bucket, absl::Time now) const;

  const uint32_t per_second_;
  mutable Mutex mutex_;
  std::unordered_map<std::string, Bucket> buckets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::gateway
