#include "services/npu_worker/xrt/xrt_status.h"

#include <cerrno>
#include <chrono>
#include <exception>
#include <new>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tandem::npu {
namespace {

absl::Status TimedOut(int64_t timeout_ms) {
  return absl::UnavailableError(
      absl::StrFormat("the NPU did not finish a command within %d ms", timeout_ms));
}

// A wait of at most `timeout_ms`.
struct Wait {
  int64_t timeout_ms;
  absl::Time start = absl::Now();
  bool IsOver() const { return absl::Now() - start >= absl::Milliseconds(timeout_ms); }
};

absl::Status FromState(ert_cmd_state state, const Wait& wait) {
  switch (state) {
    case ERT_CMD_STATE_COMPLETED:
      return absl::OkStatus();
    // Neither finished nor failed: the wait ran out.
    case ERT_CMD_STATE_NEW:
    case ERT_CMD_STATE_QUEUED:
    case ERT_CMD_STATE_SUBMITTED:
    case ERT_CMD_STATE_RUNNING:
      return TimedOut(wait.timeout_ms);
    // XRT says so as well where the wait ran out.
    case ERT_CMD_STATE_TIMEOUT:
      if (wait.IsOver()) return TimedOut(wait.timeout_ms);
      return absl::UnavailableError(
          "the NPU's driver gave a command up that did not end in its time, and reset the context");
    case ERT_CMD_STATE_ABORT:
    case ERT_CMD_STATE_NORESPONSE:
      return absl::UnavailableError(absl::StrFormat("the NPU's driver gave a command up (state %d)",
                                                    static_cast<int>(state)));
    default:
      return absl::InternalError(absl::StrFormat("an NPU command ended with an error (state %d)",
                                                 static_cast<int>(state)));
  }
}

}  // namespace

absl::Status CurrentExceptionStatus(const std::string& what) {
  try {
    throw;
  } catch (const std::system_error& error) {
    const std::string message = absl::StrFormat("%s: %s", what, error.what());
    const int code = error.code().value();
    if (code == EACCES || code == EPERM) return absl::PermissionDeniedError(message);
    if (code == EINVAL) return absl::InvalidArgumentError(message);
    if (code == ENODEV || code == ETIME || code == ETIMEDOUT) {
      return absl::UnavailableError(message);
    }
    if (code == ENOMEM || code == EAGAIN || code == EMFILE || code == ENOSPC) {
      return absl::ResourceExhaustedError(message);
    }
    return absl::InternalError(message);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrFormat("%s: out of memory", what));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrFormat("%s: %s", what, error.what()));
  } catch (...) {
    return absl::InternalError(absl::StrFormat("%s: unknown exception", what));
  }
}

absl::Status WithRemedy(absl::StatusCode code, const absl::Status& status, const char* remedy) {
  return absl::Status(code, absl::StrFormat("%s: %s", std::string(status.message()), remedy));
}

namespace {

// The time-out in flight, or any other exception, of a wait.  REQUIRES it is called in a handler.
absl::Status WaitExceptionStatus(int64_t timeout_ms) {
  try {
    throw;
  } catch (const std::system_error& error) {
    const int code = error.code().value();
    if (code == ETIME || code == ETIMEDOUT) return TimedOut(timeout_ms);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    // The last is what 2.25 says when a run's wait ran out.
    if (absl::StrContains(text, "timeout") || absl::StrContains(text, "timed out") ||
        absl::StrContains(text, "unexpected command state")) {
      return TimedOut(timeout_ms);
    }
  } catch (...) {
  }
  return CurrentExceptionStatus("waiting for the NPU");
}

}  // namespace

absl::Status WaitFor(const xrt::run& run, int64_t timeout_ms) {
  const Wait wait{timeout_ms};
  try {
    return FromState(run.wait(std::chrono::milliseconds(timeout_ms)), wait);
  } catch (...) {
    return WaitExceptionStatus(timeout_ms);
  }
}

#if NPU_HAS_EXT_BO
absl::Status WaitFor(const xrt::runlist& list, int64_t timeout_ms) {
  const Wait wait{timeout_ms};
  try {
    const std::cv_status status = list.wait(std::chrono::milliseconds(timeout_ms));
    return status == std::cv_status::timeout ? TimedOut(timeout_ms) : absl::OkStatus();
  } catch (const xrt::runlist::command_error& error) {
    return FromState(error.get_command_state(), wait);
  } catch (...) {
    return WaitExceptionStatus(timeout_ms);
  }
}
#endif

}  // namespace tandem::npu
