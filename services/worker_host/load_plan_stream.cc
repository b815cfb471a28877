#include "services/worker_host/load_plan_stream.h"

#include <string>
#include <utility>

#include "services/common/rpc/status.h"

namespace tandem {

void LoadPlanStream::RunOnDevice(DeviceHost& host) {
  if (cancelled_.load(std::memory_order_relaxed)) {
    return Conclude(absl::CancelledError("the caller has gone"));
  }
  Conclude(host.Load(request_, [this, &host](double fraction, std::string_view phase) {
    host.CountTurn();
    Report(fraction, phase);
  }));
}

void LoadPlanStream::Report(double fraction, std::string_view phase) {
  {
    absl::MutexLock lock(&mutex_);
    next_.set_fraction(fraction);
    next_.set_phase(std::string(phase));
    waiting_ = writing_;
    if (writing_) return;
    writing_ = true;
    *message_.mutable_progress() = next_;
  }
  StartWrite(&message_);
}

void LoadPlanStream::Conclude(absl::StatusOr<worker::v1::LoadPlanReport> result) {
  result_ = std::move(result);
  {
    absl::MutexLock lock(&mutex_);
    concluded_ = true;
    if (writing_) return;  // OnWriteDone concludes
  }
  WriteConclusion();
}

void LoadPlanStream::OnWriteDone(bool /*ok*/) {
  bool conclude = false;
  {
    absl::MutexLock lock(&mutex_);
    conclude = concluded_;
    if (!conclude) {
      writing_ = std::exchange(waiting_, false);
      if (!writing_) return;
      *message_.mutable_progress() = next_;
    }
  }
  if (conclude) return WriteConclusion();
  StartWrite(&message_);
}

void LoadPlanStream::WriteConclusion() {
  if (!result_.ok()) return Finish(ToGrpcStatus(result_.status()));
  *message_.mutable_report() = *std::move(result_);
  StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
}

}  // namespace tandem
