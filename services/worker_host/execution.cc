#include "services/worker_host/execution.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/clock.h"
#include "services/common/base/logging.h"
#include "services/common/rpc/status.h"

namespace tandem {

Execution::Execution(worker::v1::Execution::AsyncService& service, DeviceHost& host,
                     uint32_t max_streams)
    : service_(service), host_(host), max_streams_(max_streams) {}

Execution::~Execution() = default;

void Execution::Begin(grpc::ServerCompletionQueue* queue) {
  queue_ = queue;
  AcceptOne();
}

void Execution::AcceptOne() {
  auto stream = std::make_unique<ExecuteStream>(*this);
  ExecuteStream* const key = stream.get();
  streams_.emplace(key, std::move(stream));
}

ExecuteStream::ExecuteStream(Execution& owner) : owner_(owner), stream_(&context_) {
  due_.reserve(2);
  context_.AsyncNotifyWhenDone(static_cast<DeviceEvent*>(&end_));
  owner_.service_.RequestExecute(&context_, &stream_, owner_.queue_, owner_.queue_,
                                 static_cast<DeviceEvent*>(&accepted_));
}

void ExecuteStream::OnAccepted(bool ok) {
  if (!ok) return owner_.Forget(this);  // the server shuts down
  owner_.AcceptOne();
  if (owner_.full()) {
    return Finish(ToGrpcStatus(absl::ResourceExhaustedError(
        absl::StrFormat("%d streams are open, the most this worker takes", owner_.max_streams_))));
  }
  ReadNext();
}

void ExecuteStream::OnRead(bool ok) {
  reading_ = false;
  if (!ok) {
    reads_ended_ = true;
    Release();
    if (!has_answers()) Finish(grpc::Status::OK);
    return;
  }
  if (request_.flush()) {
    if (held_.has_value()) held_->announced = false;
    ReleaseIfDue();
  } else if (request_.masks_ready()) {
    TakeMasks();
  } else if (!gone_) {
    Take();
  } else {
    Release();
  }
  ReadNext();
}

void ExecuteStream::Take() {
  const int64_t arrival_ns = NowNanos();
  if (LogEnabled(LogLevel::kDebug)) {
    LogDebug("call", {{"step", request_.step_id()},
                      {"segment", request_.segment_index()},
                      {"traceparent", request_.traceparent()}});
  }
  const Held taken{.call = owner_.host_.Submit(request_),
                   .arrival_ns = arrival_ns,
                   .announced = request_.another_follows() && !owner_.host_.runs_in_wait(),
                   .awaits_masks = request_.masks_follow()};
  Release();
  held_ = taken;
  ReleaseIfDue();
}

void ExecuteStream::TakeMasks() {
  if (!held_.has_value() || !std::exchange(held_->awaits_masks, false)) return;
  owner_.host_.MasksReady(held_->call);
  ReleaseIfDue();
}

void ExecuteStream::ReleaseIfDue() {
  if (held_.has_value() && !held_->announced && !held_->awaits_masks) Release();
}

void ExecuteStream::Release() {
  if (!held_.has_value()) return;
  due_.push_back(*held_);
  owner_.host_.Want(held_->call, this);
  held_.reset();
}

void ExecuteStream::CallsEnded() {
  const bool writing = !answers_.empty();
  while (!due_.empty() && owner_.host_.Ended(due_.front().call)) {
    worker::v1::ExecuteResponse& answer = answers_.emplace_back();
    owner_.host_.Answer(due_.front().call, answer);
    answer.set_worker_ns(static_cast<uint64_t>(NowNanos() - due_.front().arrival_ns));
    due_.erase(due_.begin());
  }
  if (!writing && !answers_.empty()) Write();
  ReadNext();
}

void ExecuteStream::Write() {
  stream_.Write(answers_.front(), static_cast<DeviceEvent*>(&written_));
}

void ExecuteStream::ReadNext() {
  if (reading_ || reads_ended_ || !due_.empty() || answers_.size() > 1) return;
  reading_ = true;
  stream_.Read(&request_, static_cast<DeviceEvent*>(&read_));
}

void ExecuteStream::OnWritten(bool ok) {
  // A failed write means that the client has disconnected.  Reads end after the calls already sent.
  gone_ = gone_ || !ok;
  answers_.pop_front();
  if (!answers_.empty()) Write();
  if (reads_ended_ && !has_answers()) return Finish(grpc::Status::OK);
  ReadNext();
}

void ExecuteStream::Finish(const grpc::Status& status) {
  stream_.Finish(status, static_cast<DeviceEvent*>(&finish_));
}

void ExecuteStream::OnFinished(bool /*ok*/) {
  finished_ = true;
  MaybeForget();
}

void ExecuteStream::OnDone(bool /*ok*/) {
  done_ = gone_ = true;
  MaybeForget();
}

void ExecuteStream::MaybeForget() {
  if (finished_ && done_) owner_.Forget(this);
}

}  // namespace tandem
