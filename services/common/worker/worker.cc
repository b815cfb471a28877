#include "services/common/worker/worker.h"

#include "services/common/base/check.h"

namespace tandem {

absl::Status Worker::Queue(const SegmentRun& run) {
  queued_.push_back(run);
  return absl::OkStatus();
}

absl::StatusOr<SegmentResult> Worker::Finish() {
  TANDEM_CHECK(!queued_.empty());
  const SegmentRun run = queued_.front();
  queued_.pop_front();
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
