// Limits the memory of unary answers that clients have not read yet.  gRPC keeps a whole answer
// until its client reads it.
#pragma once

#include <google/protobuf/message.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/gateway/http/body_budget.h"

namespace tandem::gateway {

// Thread-safe.
class UnreadAnswers {
 public:
  static constexpr size_t kTotalBytes = 128 << 20;
  explicit UnreadAnswers(size_t total_bytes = kTotalBytes)
      : budget_({.total_bytes = total_bytes,
                 .body_bytes = total_bytes / 2,
                 .stall = absl::InfiniteDuration()}) {}

  // Reserves memory for `answer` to `tenant` until the result is destroyed, which must not outlive
  // this.  Null for small answers, which are not counted.  UNAVAILABLE: no memory is left.
  absl::StatusOr<std::unique_ptr<BodyBudget::Share>> Hold(const std::string& tenant,
                                                          const google::protobuf::Message& answer) {
    // The message and gRPC's encoded copy of it.
    const size_t bytes = answer.ByteSizeLong() + answer.SpaceUsedLong();
    if (bytes <= kSmallBodyBytes) return nullptr;
    const absl::Time now = absl::Now();
    auto share = budget_.Begin(
        tenant, [] {}, now);
    if (share->Grow(bytes, now)) return share;
    return absl::UnavailableError(absl::StrFormat(
        "there is no memory for an answer of %d bytes while others are unread: read "
        "them, or ask for less at a time",
        answer.ByteSizeLong()));
  }

 private:
  BodyBudget budget_;
};

}  // namespace tandem::gateway
