// XRT's two ways of failing, exceptions and command states, as one Status.  Private to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/npu_worker/xrt/xrt_features.h"

namespace tandem::npu {

// The exception in flight as a Status: `what` is prefixed.  No memory: RESOURCE_EXHAUSTED; a
// refused permission: PERMISSION_DENIED; a value that the driver refuses: INVALID_ARGUMENT; no device,
// or no answer in time: UNAVAILABLE; otherwise INTERNAL.  REQUIRES it is called in a handler.
absl::Status CurrentExceptionStatus(const std::string& what);

// `status` with another code, and what to do about it.
absl::Status WithRemedy(absl::StatusCode code, const absl::Status& status, const char* remedy);

// Calls `call` and turns any exception into a Status.
template <typename Call>
absl::Status Guarded(const std::string& what, Call&& call) {
  try {
    std::forward<Call>(call)();
    return absl::OkStatus();
  } catch (...) {
    return CurrentExceptionStatus(what);
  }
}

// Waits for `run`, at most `timeout_ms`.  A time-out, whether XRT returns a state (2.13) or throws
// (later), is UNAVAILABLE; so is a command that the driver gave up.  A command that ended with an
// error is INTERNAL.
absl::Status WaitFor(const xrt::run& run, int64_t timeout_ms);
#if NPU_HAS_EXT_BO
absl::Status WaitFor(const xrt::runlist& list, int64_t timeout_ms);
#endif

}  // namespace tandem::npu
