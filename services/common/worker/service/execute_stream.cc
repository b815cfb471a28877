#include "services/common/worker/service/execute_stream.h"

#include <chrono>
#include <utility>

namespace tandem {
namespace {

int64_t NowNanos() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

ExecuteStream::ExecuteStream(DeviceThread& device, std::function<void(ExecuteStream*)> on_done)
    : device_(device), on_done_(std::move(on_done)) {
  for (Slot& slot : slots_) slot.stream = this;
  // The client waits for the headers before it counts the stream as open.
  StartSendInitialMetadata();
  StartRead(&slots_[0].request);
}

void ExecuteStream::OnReadDone(bool ok) {
  bool finish = false;
  Slot* queue = nullptr;
  Slot* read = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    if (ok) {
      queue = &SlotAt(num_read_++);
      if (num_read_ - num_written_ < kWindow) {
        read = &SlotAt(num_read_);
      } else {
        read_paused_ = true;
      }
    } else {
      reads_ended_ = true;
      finish = MayFinish();
    }
  }
  if (finish) return Finish(grpc::Status::OK);
  if (queue == nullptr) return;
  queue->arrival_ns = NowNanos();
  device_.Push(queue);
  if (read != nullptr) StartRead(&read->request);
}

void ExecuteStream::Slot::RunOnDevice(DeviceHost& host) {
  // What nobody waits for any more is not run.
  if (!stream->cancelled_.load(std::memory_order_relaxed)) host.Execute(request, response);
  response.set_worker_ns(NowNanos() - arrival_ns);
  stream->Answered();
}

void ExecuteStream::Answered() {
  Slot* write = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    ++num_answered_;
    if (!writing_) {
      writing_ = true;
      write = &SlotAt(num_written_);
    }
  }
  // Fails at once on a call that has been cancelled, so that OnWriteDone follows in any case.
  if (write != nullptr) StartWrite(&write->response);
}

void ExecuteStream::OnWriteDone(bool /*ok*/) {
  // A write that failed means a call that has ended: the reads end too, and then this.
  Slot* write = nullptr;
  Slot* read = nullptr;
  bool finish = false;
  {
    absl::MutexLock lock(&mutex_);
    ++num_written_;
    if (num_written_ != num_answered_) {
      write = &SlotAt(num_written_);
    } else {
      writing_ = false;
      finish = MayFinish();
    }
    if (read_paused_) {
      read_paused_ = false;
      read = &SlotAt(num_read_);
    }
  }
  if (finish) return Finish(grpc::Status::OK);
  if (write != nullptr) StartWrite(&write->response);
  if (read != nullptr) StartRead(&read->request);
}

void ExecuteStream::OnDone() {
  on_done_(this);
  delete this;
}

}  // namespace tandem
