#include "services/common/base/cancellation.h"

#include <utility>

namespace tandem {
namespace {

thread_local CancellationScope* innermost = nullptr;

}  // namespace

CancellationScope::CancellationScope(std::function<bool()> cancelled)
    : cancelled_(std::move(cancelled)), outer_(std::exchange(innermost, this)) {}

CancellationScope::~CancellationScope() { innermost = outer_; }

absl::Status CheckCancelled() {
  if (innermost == nullptr || !innermost->cancelled_()) return absl::OkStatus();
  return absl::CancelledError("nobody waits for the result any more");
}

}  // namespace tandem
