// The error of Executor::Recover when the model is gone: the loader has lost its weights, and the
// file has changed since.  Another Executor::Start serves the file as it is now.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_format.h"

namespace tandem::gateway {

inline constexpr char kModelChangedMark[] = "tandem/model-changed";

inline absl::Status ModelChangedError(const std::string& model_name) {
  absl::Status status = absl::FailedPreconditionError(absl::StrFormat(
      "the loader no longer has the weights that were served, and the file of model '%s' has "
      "changed since they were loaded",
      model_name));
  status.SetPayload(kModelChangedMark, absl::Cord());
  return status;
}

inline bool IsModelChanged(const absl::Status& status) {
  return status.GetPayload(kModelChangedMark).has_value();
}

}  // namespace tandem::gateway
