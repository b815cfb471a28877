// Limits how many requests of each tenant wait or run, and how many prompt tokens they have.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"

namespace tandem::gateway {

// One tenant alone may take `max_requests` places and `max_tokens` prompt tokens (0: any number).
// As much again is reserved for tenants with less than an equal share: a queue that one tenant has
// filled refuses only that tenant.  A tenant without a request may have one of any length within
// the reserve, and of any length at all where no other request is.  Copyable, thread-compatible.
class QueuePlaces {
 public:
  explicit QueuePlaces(uint64_t max_requests, uint64_t max_tokens = 0)
      : max_requests_(max_requests), max_tokens_(max_tokens) {}

  // RESOURCE_EXHAUSTED: the queue is full for this tenant.
  absl::Status Take(const std::string& tenant, uint64_t tokens = 0);
  // Takes a place whether there is one or not: for a request that has one elsewhere already.
  void TakeAnyway(const std::string& tenant, uint64_t tokens = 0);
  // Whether Take would succeed.
  bool Fits(const std::string& tenant, uint64_t tokens = 0) const;
  // REQUIRES a place was taken with as many tokens.
  void Release(const std::string& tenant, uint64_t tokens = 0);
  uint64_t num_taken() const { return taken_.requests; }
  uint64_t num_tokens() const { return taken_.tokens; }

 private:
  struct Taken {
    uint64_t requests = 0;
    uint64_t tokens = 0;
  };
  Taken Of(const std::string& tenant) const;
  // An equal share of `capacity` beside the tenants there are.
  uint64_t ShareOf(const Taken& own, uint64_t capacity) const;
  bool HasPlace(const Taken& own) const;
  bool HasTokens(const Taken& own, uint64_t tokens) const;

  uint64_t max_requests_;
  uint64_t max_tokens_;
  Taken taken_;
  std::unordered_map<std::string, Taken> by_tenant_;  // none without a request
};

}  // namespace tandem::gateway
