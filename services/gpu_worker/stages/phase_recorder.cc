#include "services/gpu_worker/stages/phase_recorder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "services/common/base/status_macros.h"
#include "services/gpu_worker/kernels/phases.h"

namespace tandem::gpu {
namespace {

constexpr uint64_t kMostBytes = uint64_t{4} << 20;
constexpr absl::Duration kBeginTimeout = absl::Minutes(1);

}  // namespace

absl::StatusOr<std::unique_ptr<DependencyCounters>> DependencyCounters::Create(
    const vulkan::Device& device) {
  auto counters = std::make_unique<DependencyCounters>();
  TANDEM_ASSIGN_OR_RETURN(counters->counters_,
                          vulkan::Buffer::Allocate(device, kMostBytes, vulkan::MemoryKind::kDevice,
                                                   "dependency counters"));
  TANDEM_ASSIGN_OR_RETURN(
      counters->given_up_,
      vulkan::Buffer::Allocate(device, sizeof(uint32_t), vulkan::MemoryKind::kExchange,
                               "phases given up"));
  counters->Clear();
  return counters;
}

void DependencyCounters::Clear() {
  taken_.clear();
  std::ranges::fill(given_up_.mapped(), std::byte{0});
}

int64_t DependencyCounters::Take() {
  if ((taken_.size() + 1) * sizeof(DependencyCounter) > kMostBytes) return -1;
  taken_.push_back({.given_up = given_up_.address()});
  return static_cast<int64_t>(taken_.size()) - 1;
}

uint64_t DependencyCounters::Address(int64_t index) const {
  return counters_.address() + static_cast<uint64_t>(index) * sizeof(DependencyCounter);
}

void DependencyCounters::Add(int64_t index, uint32_t groups, bool waits) {
  DependencyCounter& counter = taken_[static_cast<size_t>(index)];
  counter.groups += static_cast<int32_t>(groups);
  counter.left = counter.groups;
  if (!waits) return;
  counter.waits = 1;
  taken_[static_cast<size_t>(index) - 1].awaited = 1;
}

absl::Status DependencyCounters::Begin(const vulkan::CommandPool& pool,
                                       const vulkan::PipelineLayout& layout,
                                       vulkan::Timeline& timeline) const {
  if (taken_.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(auto recorder, vulkan::Recorder::Begin(pool, layout));
  recorder.Update(counters_, 0, std::as_bytes(std::span(taken_)));
  recorder.TransferBarrier();
  TANDEM_ASSIGN_OR_RETURN(const VkCommandBuffer commands, recorder.End());
  return timeline.SubmitAndWait({&commands, 1}, kBeginTimeout);
}

absl::Status DependencyCounters::Check(KernelSet& kernels) const {
  uint32_t flag;
  std::memcpy(&flag, given_up_.mapped().data(), sizeof(flag));
  if (flag == 0) return absl::OkStatus();
  kernels.ForbidDependencyCounters();
  return absl::UnavailableError(
      "workgroups were not started in the order of their dispatches; the next load of a model does "
      "without dependency counters");
}

absl::Status PhaseRecorder::Record(Launch launch) {
  bool counts = counters_ != nullptr && CountsPhases(launch.kernel);
  if (counts && own_ < 0) {
    own_ = counters_->Take();
  }
  counts = counts && own_ >= 0;
  if (due_ == Due::kBarrier || (due_ == Due::kCounter && !counts)) {
    recorder_.Barrier();
    due_ = Due::kNothing;
  }
  if (counts) {
    const bool waits = due_ == Due::kCounter;
    counters_->Add(own_, launch.groups_x * launch.groups_y, waits);
    SetPhase(launch, counters_->Address(own_), waits);
  }
  counted_ = counted_ && counts;
  empty_ = false;
  return kernels_.Record(launch, recorder_);
}

void PhaseRecorder::Next() {
  if (empty_) return;
  due_ = counted_ ? Due::kCounter : Due::kBarrier;
  empty_ = true;
  counted_ = true;
  own_ = -1;
}

absl::Status PhaseRecorder::Run(const Launch& launch) {
  TANDEM_RETURN_IF_ERROR(Record(launch));
  Next();
  return absl::OkStatus();
}

void PhaseRecorder::Close() {
  Next();
  if (due_ == Due::kNothing) return;
  due_ = Due::kNothing;
  recorder_.Barrier();
}

}  // namespace tandem::gpu
