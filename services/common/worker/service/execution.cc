#include "services/common/worker/service/execution.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/clock.h"
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
  stream_.Read(&request_, static_cast<DeviceEvent*>(&read_));
}

void ExecuteStream::OnRead(bool ok) {
  if (!ok) {
    reads_ended_ = true;
    if (!writing_) Finish(grpc::Status::OK);
    return;
  }
  const int64_t arrival_ns = NowNanos();
  // What nobody waits for any more is not run.
  if (!gone_) owner_.host_.Execute(request_, response_);
  response_.set_worker_ns(static_cast<uint64_t>(NowNanos() - arrival_ns));
  answer_waits_ = writing_;
  if (!writing_) Answer();
}

void ExecuteStream::Answer() {
  answer_waits_ = false;
  writing_ = true;
  stream_.Write(response_, static_cast<DeviceEvent*>(&written_));
  stream_.Read(&request_, static_cast<DeviceEvent*>(&read_));
}

void ExecuteStream::OnWritten(bool ok) {
  // A write that failed means a client that has gone: reads end once what it had sent is read.
  gone_ = gone_ || !ok;
  writing_ = false;
  if (answer_waits_) return Answer();
  if (reads_ended_) Finish(grpc::Status::OK);
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
