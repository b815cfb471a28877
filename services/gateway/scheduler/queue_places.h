// Limits how many requests of each tenant wait or run.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"

namespace tandem::gateway {

// One tenant alone may take `capacity` places.  The same number again is reserved for tenants with
// less than an equal share of `capacity`: a queue that one tenant has filled refuses only that
// tenant.  Thread-compatible.
class QueuePlaces {
 public:
  explicit QueuePlaces(uint64_t capacity) : capacity_(capacity) {}

  // RESOURCE_EXHAUSTED: the queue is full for this tenant.
  absl::Status Take(const std::string& tenant);
  // REQUIRES a place was taken.
  void Release(const std::string& tenant);
  uint64_t num_taken() const { return num_taken_; }

 private:
  uint64_t capacity_;
  uint64_t num_taken_ = 0;
  std::unordered_map<std::string, uint64_t> by_tenant_;  // none with 0
};

}  // namespace tandem::gateway
