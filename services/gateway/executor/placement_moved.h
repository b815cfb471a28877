// The error of Executor::Wait when nothing is lost but another placement has become better: Recover
// loads it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace tandem::gateway {

inline constexpr char kPlacementMovedMark[] = "tandem/placement-moved";

inline absl::Status PlacementMovedError(const std::string& why) {
  absl::Status status = absl::UnavailableError(absl::StrCat("the placement changes: ", why));
  status.SetPayload(kPlacementMovedMark, absl::Cord());
  return status;
}

inline bool IsPlacementMoved(const absl::Status& status) {
  return status.GetPayload(kPlacementMovedMark).has_value();
}

}  // namespace tandem::gateway
