// Keeps exceptions of drivers' libraries from leaving the device thread.
#pragma once

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace tandem {

// An exception of `call` becomes UNAVAILABLE, as for a lost device.
template <typename F>
auto GuardDriver(const char* what, F&& call) -> decltype(call()) {
  try {
    return std::forward<F>(call)();
  } catch (const std::exception& e) {
    return absl::UnavailableError(absl::StrFormat("%s threw: %s", what, e.what()));
  } catch (...) {
    return absl::UnavailableError(absl::StrFormat("%s threw", what));
  }
}

}  // namespace tandem
