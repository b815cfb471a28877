#include "services/worker_host/device_thread.h"

#include <utility>

#include "absl/time/clock.h"

namespace tandem {
namespace {

constexpr absl::Duration kPostponement = absl::Milliseconds(1);
constexpr uint32_t kMostPostponements = 1000;

}  // namespace

void DeviceTask::Happened(bool /*ok*/) {
  DeviceThread& thread = *thread_;
  if (thread.host_.awaits_masks() && !thread.stop_.requested &&
      num_postponed_ < kMostPostponements) {
    ++num_postponed_;
    alarm_.Set(thread.queue(), absl::ToChronoTime(absl::Now() + kPostponement),
               static_cast<DeviceEvent*>(this));
    return;
  }
  --thread.num_tasks_;
  thread.at_task_.store(true, std::memory_order_relaxed);
  RunOnDevice(thread.host_);
  thread.at_task_.store(false, std::memory_order_relaxed);
}

DeviceThread::DeviceThread(DeviceHost& host, std::unique_ptr<grpc::ServerCompletionQueue> queue,
                           uint32_t max_tasks, absl::Duration idle_interval)
    : host_(host), queue_(std::move(queue)), max_tasks_(max_tasks), idle_interval_(idle_interval) {}

DeviceThread::~DeviceThread() {
  if (thread_.joinable()) {
    stop_.alarm.Set(queue_.get(), gpr_now(GPR_CLOCK_MONOTONIC), static_cast<DeviceEvent*>(&stop_));
    thread_.join();
    return;
  }
  queue_->Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) static_cast<DeviceEvent*>(tag)->Happened(ok);
}

void DeviceThread::Start(std::function<void()> begin, std::function<bool()> may_end) {
  may_end_ = std::move(may_end);
  thread_ = std::thread([this, begin = std::move(begin)] {
    begin();
    host_.SelfTest();
    Run();
  });
}

bool DeviceThread::Push(DeviceTask* task) {
  if (num_tasks_.fetch_add(1) >= max_tasks_) {
    --num_tasks_;
    return false;
  }
  task->thread_ = this;
  task->alarm_.Set(queue_.get(), gpr_now(GPR_CLOCK_MONOTONIC), static_cast<DeviceEvent*>(task));
  return true;
}

void DeviceThread::Run() {
  bool shut_down = false;
  while (true) {
    if (stop_.requested && !shut_down && may_end_()) {
      queue_->Shutdown();
      shut_down = true;
    }
    host_.CountTurn();
    if (host_.busy()) {
      if (host_.shared()) TakeEvent(std::chrono::system_clock::now());
      host_.Turn();
      continue;
    }
    switch (TakeEvent(absl::ToChronoTime(absl::Now() + idle_interval_))) {
      case grpc::CompletionQueue::GOT_EVENT:
        break;
      case grpc::CompletionQueue::TIMEOUT:
        host_.CheckIdle();
        break;
      case grpc::CompletionQueue::SHUTDOWN:
        return;
    }
  }
}

grpc::CompletionQueue::NextStatus DeviceThread::TakeEvent(
    std::chrono::system_clock::time_point deadline) {
  void* tag = nullptr;
  bool ok = false;
  const auto status = host_.until_next_call().Next(*queue_, &tag, &ok, deadline);
  if (status == grpc::CompletionQueue::GOT_EVENT) static_cast<DeviceEvent*>(tag)->Happened(ok);
  return status;
}

}  // namespace tandem
