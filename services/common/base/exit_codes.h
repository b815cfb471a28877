// How every program ends: what a supervisor may do about it.
#pragma once

#include "absl/status/status.h"

namespace tandem {

enum ExitCode : int {
  kExitSuccess = 0,       // an orderly end
  kExitFailure = 1,       // another try may help
  kExitUsage = 2,         // flags, or the files that they name, are wrong
  kExitNothingToDo = 3,   // this machine has nothing for the service: an NPU worker without an NPU
  kExitNoDevice = 4,      // the device that was asked for is not there or cannot be opened
  kExitWrongAnswers = 5,  // it can be opened and gives wrong answers
  kExitAddress = 6,       // an address cannot be listened on: it is in use, or not permitted
};

// The codes after which a start with the same flags fails the same way.
inline constexpr int kPermanentExitCodes[] = {kExitUsage, kExitNoDevice, kExitWrongAnswers,
                                              kExitAddress};

// The code of a service that could not begin to serve.
inline int ServeExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitSuccess;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
      return kExitAddress;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
      return kExitUsage;
    default:
      return kExitFailure;
  }
}

// The code of a worker whose device could not be opened.
inline int DeviceExitCode(const absl::Status& status) {
  return ServeExitCode(status) == kExitUsage ? kExitNoDevice : ServeExitCode(status);
}

}  // namespace tandem
