#include "services/gateway/executor/model_file_watch.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/logging.h"

namespace tandem::gateway {
namespace {

// The end of the gateway waits for at most one call.
constexpr absl::Duration kCallTimeout = absl::Seconds(1);

}  // namespace

ModelFileWatch::ModelFileWatch(std::unique_ptr<LoaderClient> loader, const loader::v1::Model& model,
                               absl::Duration period)
    : loader_(std::move(loader)),
      name_(model.name()),
      model_id_(model.model_id()),
      stamp_(model.file_stamp()),
      period_(period) {
  if (!stamp_.empty()) thread_ = std::thread([this] { Run(); });
}

ModelFileWatch::~ModelFileWatch() {
  Stop();
  if (thread_.joinable()) thread_.join();
}

void ModelFileWatch::Stop() {
  MutexLock lock(mutex_);
  stopping_ = true;
  stop_.SignalAll();
}

std::string ModelFileWatch::notice() const {
  MutexLock lock(mutex_);
  return notice_;
}

bool ModelFileWatch::Pause() {
  MutexLock lock(mutex_);
  const absl::Time until = absl::Now() + period_;
  while (!stopping_ && stop_.WaitUntil(mutex_, until)) {
  }
  return !stopping_;
}

void ModelFileWatch::Run() {
  while (Pause()) Look();
}

void ModelFileWatch::Look() {
  const auto file = loader_->GetModelFile(name_, model_id_, kCallTimeout);
  const bool gone = absl::IsNotFound(file.status());
  if (!file.ok() && !gone) return;  // the loader is away: it tells when it is back
  std::string notice;
  if (gone) {
    notice = absl::StrFormat(
        "the file of model '%s' is gone: what was loaded is served on, and cannot be loaded again",
        name_);
  } else if (file->file_stamp() != stamp_) {
    notice = absl::StrFormat(
        "the file of model '%s' has changed since it was loaded: what was loaded is served until "
        "the gateway is restarted",
        name_);
    if (!file->resident()) {
      notice +=
          "; the loader no longer has it, so that the loss of a worker loads the changed file "
          "and ends running requests";
    }
  }
  {
    MutexLock lock(mutex_);
    if (notice == notice_) return;
    notice_ = notice;
  }
  if (notice.empty()) {
    LogInfo("the model's file is as it was loaded", {{"model", name_}});
  } else {
    LogWarning("the model's file is another", {{"model", name_}, {"notice", notice}});
  }
}

}  // namespace tandem::gateway
