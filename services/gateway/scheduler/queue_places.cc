#include "services/gateway/scheduler/queue_places.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace tandem::gateway {

QueuePlaces::Taken QueuePlaces::Of(const std::string& tenant) const {
  const auto found = by_tenant_.find(tenant);
  return found == by_tenant_.end() ? Taken{} : found->second;
}

uint64_t QueuePlaces::ShareOf(const Taken& own, uint64_t capacity) const {
  const uint64_t num_tenants = by_tenant_.size() + (own.requests == 0 ? 1 : 0);
  return std::max<uint64_t>(capacity / num_tenants, 1);
}

bool QueuePlaces::HasPlace(const Taken& own) const {
  if (taken_.requests < max_requests_) return true;
  const bool alone = by_tenant_.empty() || (by_tenant_.size() == 1 && own.requests > 0);
  return !alone && own.requests < ShareOf(own, max_requests_) &&
         taken_.requests < 2 * max_requests_;
}

bool QueuePlaces::HasTokens(const Taken& own, uint64_t tokens) const {
  if (max_tokens_ == 0 || taken_.requests == 0 || taken_.tokens + tokens <= max_tokens_) {
    return true;
  }
  if (taken_.tokens + tokens > 2 * max_tokens_) return false;
  return own.requests == 0 ||
         (by_tenant_.size() > 1 && own.tokens + tokens <= ShareOf(own, max_tokens_));
}

bool QueuePlaces::Fits(const std::string& tenant, uint64_t tokens) const {
  const Taken own = Of(tenant);
  return HasPlace(own) && HasTokens(own, tokens);
}

absl::Status QueuePlaces::Take(const std::string& tenant, uint64_t tokens) {
  const Taken own = Of(tenant);
  if (!HasPlace(own)) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "the queue is full: %d requests are running or waiting, %d at most; %d of them are this "
        "client's, whose share is %d",
        taken_.requests, max_requests_, own.requests, ShareOf(own, max_requests_)));
  }
  if (!HasTokens(own, tokens)) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "the queue is full: prompts of %d tokens are running or waiting, %d at most; %d of them "
        "are this client's, whose share is %d, and this prompt has %d",
        taken_.tokens, max_tokens_, own.tokens, ShareOf(own, max_tokens_), tokens));
  }
  TakeAnyway(tenant, tokens);
  return absl::OkStatus();
}

void QueuePlaces::TakeAnyway(const std::string& tenant, uint64_t tokens) {
  Taken& taken = by_tenant_[tenant];
  for (Taken* const sum : {&taken_, &taken}) {
    ++sum->requests;
    sum->tokens += tokens;
  }
}

void QueuePlaces::Release(const std::string& tenant, uint64_t tokens) {
  const auto found = by_tenant_.find(tenant);
  for (Taken* const sum : {&taken_, &found->second}) {
    --sum->requests;
    sum->tokens -= tokens;
  }
  if (found->second.requests == 0) by_tenant_.erase(found);
}

}  // namespace tandem::gateway
