#include "services/common/worker/worker.h"

#include <algorithm>

#include "services/common/base/check.h"

namespace tandem {

absl::Status BlockingWorker::Submit(const SegmentRun& run) {
  submitted_.push_back(run);
  return absl::OkStatus();
}

absl::StatusOr<SegmentResult> BlockingWorker::Wait(uint32_t plan) {
  const auto oldest = std::ranges::find(submitted_, plan, &SegmentRun::plan);
  TANDEM_CHECK(oldest != submitted_.end());
  const SegmentRun run = *oldest;
  submitted_.erase(oldest);
  return Run(run);
}

std::string_view ImportPathName(ImportPath path) {
  switch (path) {
    case ImportPath::kNone:
      return "none";
    case ImportPath::kDmabuf:
      return "dmabuf";
    case ImportPath::kHostPointer:
      return "host-pointer";
    case ImportPath::kUserPointer:
      return "user-pointer";
    case ImportPath::kUpload:
      return "upload";
  }
  return "?";
}

}  // namespace tandem
