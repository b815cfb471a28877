#include "services/gpu_worker/stages/phase_recorder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "services/common/base/status_macros.h"
#include "services/gpu_worker/kernels/phases.h"

namespace tandem::gpu {
namespace {

constexpr uint64_t kMostBytes = uint64_t{4} << 20;
constexpr absl::Duration kResetTimeout = absl::Minutes(1);

}  // namespace

absl::StatusOr<std::unique_ptr<PhaseCounters>> PhaseCounters::Create(const vulkan::Device& device) {
  auto counters = std::make_unique<PhaseCounters>();
  TANDEM_ASSIGN_OR_RETURN(
      counters->counters_,
      vulkan::Buffer::Allocate(device, kMostBytes, vulkan::MemoryKind::kDevice, "phase counters"));
  TANDEM_ASSIGN_OR_RETURN(
      counters->given_up_,
      vulkan::Buffer::Allocate(device, sizeof(uint32_t), vulkan::MemoryKind::kExchange,
                               "phases given up"));
  counters->Clear();
  return counters;
}

void PhaseCounters::Clear() {
  groups_.clear();
  std::ranges::fill(given_up_.mapped(), std::byte{0});
}

int64_t PhaseCounters::Take() {
  if ((groups_.size() + 1) * sizeof(PhaseCounter) > kMostBytes) return -1;
  groups_.push_back(0);
  return taken() - 1;
}

uint64_t PhaseCounters::Address(int64_t index) const {
  return counters_.address() + static_cast<uint64_t>(index) * sizeof(PhaseCounter);
}

void PhaseCounters::Reset(vulkan::Recorder& recorder, int64_t first) const {
  std::vector<PhaseCounter> begin(static_cast<size_t>(taken() - first));
  for (size_t i = 0; i < begin.size(); ++i) {
    begin[i] = {.left = static_cast<int32_t>(groups_[static_cast<size_t>(first) + i]),
                .given_up = given_up_.address()};
  }
  recorder.Update(counters_, static_cast<uint64_t>(first) * sizeof(PhaseCounter),
                  std::as_bytes(std::span(begin)));
}

absl::Status PhaseCounters::ResetAll(const vulkan::CommandPool& pool,
                                     const vulkan::PipelineLayout& layout,
                                     vulkan::Timeline& timeline) const {
  if (groups_.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(auto recorder, vulkan::Recorder::Begin(pool, layout));
  Reset(recorder, 0);
  recorder.TransferBarrier();
  TANDEM_ASSIGN_OR_RETURN(const VkCommandBuffer commands, recorder.End());
  return timeline.SubmitAndWait({&commands, 1}, kResetTimeout);
}

absl::Status PhaseCounters::Check(KernelSet& kernels) const {
  uint32_t flag;
  std::memcpy(&flag, given_up_.mapped().data(), sizeof(flag));
  if (flag == 0) return absl::OkStatus();
  kernels.ForbidPhaseCounters();
  return absl::UnavailableError(
      "workgroups were not started in the order of their dispatches; the next load of a model does "
      "without phase counters");
}

absl::Status PhaseRecorder::Record(Launch launch) {
  bool counts = counters_ != nullptr && CountsPhases(launch.kernel);
  if (counts && own_ < 0) {
    own_ = counters_->Take();
    if (first_ < 0) first_ = own_;
  }
  counts = counts && own_ >= 0;
  if (due_ == Due::kBarrier || (due_ == Due::kCounter && !counts)) {
    recorder_.Barrier();
    due_ = Due::kNothing;
  }
  if (counts) {
    counters_->Add(own_, launch.groups_x * launch.groups_y);
    SetPhase(launch, counters_->Address(own_), due_ == Due::kCounter);
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
  if (first_ < 0) return;
  recorder_.TransferBarrier();
  counters_->Reset(recorder_, first_);
  first_ = -1;
}

}  // namespace tandem::gpu
