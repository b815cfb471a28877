#include "services/common/worker/worker.h"

#include "services/common/base/check.h"

namespace tandem {

absl::Status BlockingWorker::Submit(const SegmentRun& run) {
  submitted_.push_back(run);
  return absl::OkStatus();
}

absl::StatusOr<SegmentResult> BlockingWorker::Wait() {
  TANDEM_CHECK(!submitted_.empty());
  const SegmentRun run = submitted_.front();
  submitted_.pop_front();
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
