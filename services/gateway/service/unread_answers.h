// Bounds what answers of unary calls take together until gRPC has handed them to their clients: it
// keeps all of an answer that its client lets no more of come.
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

  // Memory for `answer` to `tenant` until the result is destroyed, which must not outlive this; it
  // is null for small ones.  UNAVAILABLE if there is none.
  absl::StatusOr<std::unique_ptr<BodyBudget::Share>> Hold(const std::string& tenant,
                                                          const google::protobuf::Message& answer) {
    // Of the message, and of its copy with gRPC.
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
